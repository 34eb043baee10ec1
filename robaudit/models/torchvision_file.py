"""The file of torchvision's trained weights, fetched where the spec asks for it."""

from __future__ import annotations

from pathlib import Path

import torch

from robaudit.errors import ModelError
from robaudit.spec.pretrained.torchvision_weights import weights_named


def downloaded(name: str) -> Path:
    """The file of torchvision's weights by name, in torch's own cache; fetched if it is not there, and checked by its hash.

    Raises:
        ModelError: there are no such weights, or they cannot be fetched.
    """
    url: str = weights_named(name).url
    path = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
    if path.is_file():
        return path
    prefix = path.stem.rpartition("-")[2]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(path), prefix if len(prefix) >= 8 else None, progress=False)
    except (OSError, RuntimeError) as error:  # URLError is an OSError; RuntimeError: another hash
        what = f"cannot be fetched from {url} ({str(error) or type(error).__name__})"
        raise ModelError(f"weights {name}", what, "check the network; or give the file: path") from error
    return path
