"""Seeds of the random numbers for each (run seed, noise kind, sample, block)."""

from __future__ import annotations

import hashlib

import torch

_MASK32 = 0xFFFFFFFF
_CPU = torch.device("cpu")


def stream_key(seed: int, kind: str, sample_id: str) -> int:
    """64 bits that identify the noise of one sample: blake2b of seed, kind and id (never of the level, batch or order)."""
    text = f"{seed}\x1f{kind}\x1f{sample_id}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def block_seed(key: int, block: int) -> int:
    """The generator seed of one block of draws of a sample.

    torch's CPU generator uses only the low 32 bits of a seed. They are a permutation of the block number that the key chooses
    (murmur3's finaliser twice, each half of the key mixed in before one of them): no two of a sample's first 2^32 blocks share
    a stream, and two samples share single blocks only by coincidence (2^-32 a pair of blocks), never a run of them.
    The high 32 bits, used on CUDA, are the key's.
    """
    low = _mix(_mix((block & _MASK32) ^ (key & _MASK32)) ^ (key >> 32))
    return ((key >> 32) << 32 | low) & 0x7FFFFFFFFFFFFFFF


def _mix(x: int) -> int:
    """murmur3's finaliser: a bijection of 32 bits in which every bit depends on every other."""
    x ^= x >> 16
    x = (x * 0x85EBCA6B) & _MASK32
    x ^= x >> 13
    x = (x * 0xC2B2AE35) & _MASK32
    return x ^ (x >> 16)


def block_size(values_per_draw: int, device: torch.device = _CPU) -> int:
    """Draws in a block, 1 to 256: a fixed function of the image size and the kind of device.

    A block has about 2^16 values on the CPU, for its caches, and 2^23 on CUDA, where a block is a launch.
    """
    values = 2**16 if device.type == "cpu" else 2**23
    return max(1, min(256, values // max(1, values_per_draw)))


def generator(device: torch.device) -> torch.Generator:
    """A separate generator on ``device``; the global one is never touched."""
    return torch.Generator(device=device)
