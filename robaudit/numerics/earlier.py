"""What do all variables drawn before a block of others amount to in their limits?"""

from __future__ import annotations

import torch
from torch import Tensor

from robaudit.numerics.rowwise import aligned, product

BLOCK = 16  # variables between two matrix products


class Earlier:
    """The variables drawn so far, by row.

    Args:
        n: (variables, rows, points), filled one variable after the other from outside.
    """

    def __init__(self, n: Tensor) -> None:
        self._n = n
        variables, rows, points = n.shape
        size = min(variables, BLOCK)
        self._left = n.new_empty(size, rows, points)
        self._known = aligned(rows, BLOCK, points, n) if variables > BLOCK else None
        self._by_row: Tensor | None = None
        self._copied = 0

    def sums(self, weights: Tensor, rows: list[int], i: int) -> Tensor:
        """Weighted sums of the first i variables: weights (some rows, n, i or more) -> (some rows, n, points).

        Where :meth:`by_row` says so, the rows are asked for one by one.
        """
        if not i:
            return weights.new_zeros(*weights.shape[:2], self._n.shape[2])
        if self._n.device.type != "cpu" or self.by_row(i):
            return product(weights[..., :i], self._before(i)[rows])
        some = self._n[:i, rows].unsqueeze(2)  # (i, rows, 1, points)
        each = weights[..., :i].unbind(-1)  # (rows, n)
        found = each[0].unsqueeze(-1) * some[0]
        for j in range(1, i):
            found += each[j].unsqueeze(-1) * some[j]
        return found

    def by_row(self, i: int) -> bool:
        """Whether sums of so many variables are cheaper as matrix products of single rows."""
        return self._n.device.type == "cpu" and i > BLOCK

    def _before(self, i: int) -> Tensor:
        """The first i variables: (rows, i, points), on the CPU contiguous in each row."""
        if self._n.device.type != "cpu":
            return self._n[:i].transpose(0, 1)
        if self._by_row is None:
            variables, rows, points = self._n.shape
            self._by_row = self._n.new_empty(rows, variables, points)
        if self._copied < i:
            self._by_row[:, self._copied : i] = self._n[self._copied : i].transpose(0, 1)
            self._copied = i
        return self._by_row[:, :i]

    def taken_from(self, first: Tensor, slope: Tensor, start: int) -> Tensor:
        """What is left of the limits of a block when those before it are taken into account.

        Args:
            first: limits of the block, (size, rows, 1).
            slope: (rows, variables, variables).
            start: number of the block's first variable.

        Returns:
            (size, rows, points), until the next call.
        """
        size = first.shape[0]
        left = self._left[:size]
        if not start:
            return left.copy_(first)
        acting = slope[:, start : start + size, :start]
        acting = torch.nn.functional.pad(acting, (0, 0, 0, BLOCK - size))  # of one shape, whatever the widest row is
        known = product(acting, self._before(start), out=self._known)
        return torch.sub(first, known[:, :size].transpose(0, 1), out=left)
