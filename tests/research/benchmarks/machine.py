"""The hardware and versions of a measurement, in words that name no machine."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import torch

CPU_INFO = Path("/proc/cpuinfo")


def cpu_model() -> str:
    """The processor's model name, or its architecture where the system does not tell."""
    if CPU_INFO.exists():
        for line in CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine(device: torch.device) -> dict[str, str]:
    """What a section says of its measurement."""
    found = {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": f"{cpu_model()}, {_counted(cores(), 'core')}",
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__.partition("+")[0],
    }
    return found | ({"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {})


def exact_products(device: torch.device) -> None:
    """Forbid CUDA to round the factors of float32 products: fp32 on all sides, as audits run."""
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def in_words(found: dict[str, str], *, quick: bool) -> str:
    """One line for the reader."""
    gpu = f"{found['gpu']}; " if "gpu" in found else ""
    words = (
        f"Measured on {found['date']}: {gpu}{found['cpu']}, "
        f"{_counted(int(found['threads']), 'thread')}, torch {found['torch']}"
    )
    return f"{words}. QUICK RUN: few repeats, rough figures." if quick else f"{words}."


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
