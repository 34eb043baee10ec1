"""Samples on their way to a worker arrive bit for bit."""

from __future__ import annotations

import pickle

import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from robaudit.auditing.shipping import Sent
from robaudit.datasets.base import Sample


def returned(sample: Sample) -> tuple[Sample, int]:
    """The sample as it arrives, and the bytes of a pixel."""
    sent: Sent = pickle.loads(pickle.dumps(Sent.of(sample)))
    return sent.sample(), sent.pixels.dtype.itemsize


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()


SHAPES = array_shapes(min_dims=3, max_dims=3, max_side=5)
FLOATS = st.floats(0, 1) | st.sampled_from([-0.0, 1 / 3, 1 / 255, np.nextafter(1 / 255, 1), 1 + 2**-52])


@given(arrays(np.uint8, SHAPES), st.none() | st.integers(0, 9), st.text())
def test_whole_steps_take_a_byte(steps: np.ndarray, label: int | None, name: str) -> None:
    sample = Sample(name, torch.from_numpy(steps).to(torch.float64) / 255, label)
    found, size = returned(sample)
    assert same_bits(found.pixels, sample.pixels)
    assert (found.id, found.label, size) == (name, label, 1)


@given(arrays(np.float64, SHAPES, elements=FLOATS))
@example(np.full((1, 1, 2), -0.0))
def test_other_pixels_are_not_rounded(pixels: np.ndarray) -> None:
    sample = Sample("a", torch.from_numpy(pixels), None)
    assert same_bits(returned(sample)[0].pixels, sample.pixels)
