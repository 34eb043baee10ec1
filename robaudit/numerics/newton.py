"""How are many small symmetric systems of one form solved, each with the same bits whatever stands beside it?"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from robaudit.numerics.rowwise import cholesky, cholesky_solve, gram, total

_NARROW = 16  # up to this many variables, elimination step by step is as fast as LAPACK, and zeros that pad a matrix change nothing


class Gram(Protocol):
    """Matrices G_i of some rows; vectors are (variables, rows)."""

    def rows(self, index: Tensor) -> Gram:
        """Those of some of the rows."""
        ...

    def times(self, v: Tensor) -> Tensor:
        """G v."""
        ...

    def solve(self, root: Tensor, diagonal: Tensor, b: Tensor) -> Tensor:
        """x with (D' G D + E) x = b, D = diag(root), E = diag(diagonal): positive definite."""
        ...


def gram_of(unit: Tensor) -> Gram:
    """G = U U' of (rows, variables, variables)."""
    narrow = unit.shape[1] <= _NARROW and unit.device.type == "cpu"
    return Interleaved.of(unit) if narrow else Separate(gram(unit))


class Interleaved:
    """Matrices (variables, variables, rows): every operation is one between elements of all rows."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix

    @classmethod
    def of(cls, unit: Tensor) -> Interleaved:
        """U U'."""
        columns = unit.permute(2, 1, 0).contiguous()
        matrix = columns[0].unsqueeze(1) * columns[0]
        for column in columns[1:]:
            matrix += column.unsqueeze(1) * column
        return cls(matrix)

    def rows(self, index: Tensor) -> Interleaved:
        """Those of some of the rows."""
        return self if len(index) == self._matrix.shape[2] else Interleaved(self._matrix[:, :, index])

    def times(self, v: Tensor) -> Tensor:
        """G v."""
        return total(self._matrix * v, 1)

    def solve(self, root: Tensor, diagonal: Tensor, b: Tensor) -> Tensor:
        """By elimination without a search for pivots, which positive definite matrices do not need."""
        system = torch.cat([self._matrix * root.unsqueeze(1) * root, b.unsqueeze(1)], 1)
        system.diagonal(dim1=0, dim2=1).add_(diagonal.T)
        for i in range(len(b)):
            row = system[i, i:] / system[i, i]
            system[:, i:].sub_(system[:, i : i + 1] * row)
            system[i, i:].copy_(row)
        return system[:, -1]


class Separate:
    """Matrices (rows, variables, variables), each by itself through LAPACK."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix

    def rows(self, index: Tensor) -> Separate:
        """Those of some of the rows."""
        return self if len(index) == len(self._matrix) else Separate(self._matrix[index])

    def times(self, v: Tensor) -> Tensor:
        """G v."""
        return (self._matrix * v.T.unsqueeze(1)).sum(-1).T

    def solve(self, root: Tensor, diagonal: Tensor, b: Tensor) -> Tensor:
        """By Cholesky's factor."""
        scale = root.T
        matrix = self._matrix * scale.unsqueeze(-1) * scale.unsqueeze(1)
        matrix.diagonal(dim1=1, dim2=2).add_(diagonal.T)
        return cholesky_solve(b.T, cholesky(matrix)[0]).T
