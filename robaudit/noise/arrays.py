"""Arrays from the user's files: read without running code, checked, and cached on the device that
uses them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robaudit.errors import SpecError

T = TypeVar("T")


def mapped(path: Path, option: str) -> NDArray[Any]:
    """The array of a .npy file, mapped into memory; never unpickled.

    Raises:
        SpecError: at the option: the file is missing or damaged.
    """
    return _opened(path, option, ".npy", lambda: np.lib.format.open_memmap(path, mode="r"))


def read_npy(path: Path, option: str) -> Tensor:
    """The numbers of a .npy file.

    Raises:
        SpecError: at the option: as for :func:`mapped`, or the file holds no numbers, or has a
            non-finite number.
    """
    return _numbers(mapped(path, option), path, option)


def read_npz(
    path: Path, option: str, *names: str, short: Collection[str] = ()
) -> dict[str, Tensor]:
    """The arrays of a .npz file with these names.

    Args:
        path: the file.
        option: of the noise, for messages.
        names: of the arrays.
        short: names of arrays that stay float16 or float32 if they are stored so, because they are
            large; all others become float64.

    Raises:
        SpecError: at the option: as for :func:`read_npy`.
    """

    def load() -> dict[str, NDArray[Any]]:
        with path.open("rb") as stream:
            # Pickles run code; files may be a stranger's.
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise TypeError("one array without a name")
            return {name: file[name] for name in names if name in file.files}

    arrays = _opened(path, option, ".npz", load)
    return {
        name: _numbers(array, path, option, short=name in short) for name, array in arrays.items()
    }


def _opened(path: Path, option: str, suffix: str, load: Callable[[], T]) -> T:
    """The result of ``load``; SpecError at the option: the file is missing or damaged."""
    try:
        # Opening a pipe would wait for a writer.
        if path.exists() and not path.is_file():
            raise OSError("not a regular file")
        return load()
    except FileNotFoundError as error:
        raise SpecError(
            option,
            f"{path} does not exist",
            f"give the path of a {suffix} file, relative to the spec file",
        ) from error
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        MemoryError,
        zipfile.BadZipFile,
    ) as error:
        what = f"{path} is not a readable {suffix} file of numbers"
        function = "numpy.savez" if suffix == ".npz" else "numpy.save"
        raise SpecError(option, what, f"write it with {function}, as floats") from error


def _numbers(array: object, path: Path, option: str, *, short: bool = False) -> Tensor:
    """The array as a float64 tensor, or in its own precision if it is short; SpecError at the
    option: it holds no finite numbers."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        raise SpecError(option, f"{path} holds no numbers", "write it with numpy, as floats")
    dtype = np.dtype(np.float64)
    is_short_float = array.dtype.kind == "f" and array.dtype.itemsize in (2, 4)
    if short and is_short_float:
        dtype = array.dtype.newbyteorder("=")  # a tensor has the byte order of the machine
    # Callers cache it, so it must also serve passes with gradients.
    with torch.inference_mode(False):
        tensor = torch.from_numpy(np.array(array, dtype=dtype, order="C"))
    if not tensor.isfinite().all():
        raise SpecError(
            option, f"{path} has numbers that are not finite", "replace NaN and infinity"
        )
    return tensor


class Placed:
    """A tensor, converted once to each dtype and device that needs it.

    Two are equal only if they are the same object.
    """

    def __init__(self, values: Tensor) -> None:
        self.values = values
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def like(self, x: Tensor) -> Tensor:
        """The values with the dtype and on the device of x."""
        return self._copy(x.device, x.dtype)

    def on(self, device: torch.device) -> Tensor:
        """The values on a device, in their own dtype."""
        return self._copy(device, self.values.dtype)

    def _copy(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        key = device, dtype
        if key not in self._copies:
            # Copies made in inference mode could not be used with gradients later.
            with torch.inference_mode(False):
                self._copies[key] = self.values.to(*key)
        return self._copies[key]
