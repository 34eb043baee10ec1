"""Models of noise beside recorded noise: which levels are compared, and the interval of a
difference that is paired by image."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

from robaudit.levels import LevelName, NoiseLevel
from robaudit.noise.gaussian import Gaussian
from robaudit.noise.process import NoiseProcess
from robaudit.noise.uniform import Uniform
from robaudit.stats.summary import Share, share
from robaudit.validation.recorded_noise import against_recorded, paired_difference_of_means
from tests.levels import sigma
from tests.unit.noise.kinds import kinds


class Recording(Gaussian):
    """Recorded noise of any kind."""

    level_name = LevelName.LEVEL
    empirical: ClassVar[bool] = True


def levels(label: str, *numbers: float) -> tuple[NoiseLevel, ...]:
    return tuple(NoiseLevel(label, number, LevelName.LEVEL) for number in numbers)


MODEL = NoiseProcess(Gaussian(), "gaussian", levels=(sigma(0.1), sigma(0.2)))
RECORDING = NoiseProcess(Recording(name="r"), "frames", levels=levels("r", 0.5, 1.25, 2.0))
OTHER = NoiseProcess(Recording(name="s"), "frames", levels=levels("s", 1.0))
WITHOUT_LEVELS = NoiseProcess(Uniform(), "uniform")


def truths(*noises: NoiseProcess) -> dict[tuple[str, NoiseLevel], Share]:
    """Image i keeps its class in 50 + i copies of 100, and at each later level in one less."""
    every = [at for noise in noises for at in noise.levels]
    return {
        (str(i), at): share(50 + i - place, 100) for i in range(5) for place, at in enumerate(every)
    }


def test_models_are_compared_with_each_recording_at_the_level_nearest_to_1() -> None:
    noises = (MODEL, RECORDING, OTHER, WITHOUT_LEVELS)
    first, second = against_recorded(noises, truths(*noises))
    assert first.recorded == RECORDING.levels[1]
    assert [level.at for level in first.levels] == [*MODEL.levels, *RECORDING.levels]
    assert second.recorded == OTHER.levels[0]
    assert [level.at for level in second.levels] == [*MODEL.levels, *OTHER.levels]
    # The levels are numbered 0 to 5, a copy in a hundred apart; the recording's 1.25 is number 3.
    assert [level.mean.value for level in first.levels] == pytest.approx(
        [0.52, 0.51, 0.50, 0.49, 0.48]
    )
    differences = [level.difference and level.difference.value for level in first.levels]
    assert differences == [pytest.approx(0.03), pytest.approx(0.02), None, None, None]
    assert {level.images for level in first.levels} == {5}


@pytest.mark.parametrize("noises", [(MODEL,), (RECORDING,), (RECORDING, WITHOUT_LEVELS), ()])
def test_there_is_nothing_to_compare_without_both(noises: tuple[NoiseProcess, ...]) -> None:
    assert against_recorded(noises, truths(*noises)) == ()


def test_the_interval_is_students_where_images_differ() -> None:
    base = [share(count, 1000) for count in (500, 600, 700, 800)]
    new = [share(count, 1000) for count in (510, 630, 700, 850)]
    found = paired_difference_of_means(base, new)
    expected = stats.ttest_1samp([0.01, 0.03, 0.0, 0.05], 0).confidence_interval(0.95)
    assert found.value == pytest.approx(0.0225)
    assert found.bounds == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("images", [1, 6])
def test_equal_images_have_the_interval_of_the_draws(images: int) -> None:
    """All copies kept their class: the bound on failures of each noise, log(40) / draws."""
    kept = [share(100, 100)] * images
    found = paired_difference_of_means(kept, kept)
    bound = 1 - 0.025 ** (1 / (100 * images))
    assert found.value == 0
    assert found.bounds == pytest.approx((-bound, bound))


def test_intervals_cover_the_difference_of_many_images() -> None:
    """Images whose true probabilities differ by .02 +- .02, 400 draws each."""
    rng = np.random.default_rng(0)
    repeats = 1000
    covered = 0
    for _ in range(repeats):
        p = rng.uniform(0.2, 0.8, 30)
        q = p + rng.normal(0.02, 0.02, 30)
        base = [share(int(count), 400) for count in rng.binomial(400, p)]
        new = [share(int(count), 400) for count in rng.binomial(400, q)]
        lower, upper = paired_difference_of_means(base, new).bounds or (1.0, 0.0)
        covered += lower <= 0.02 <= upper
    error = np.sqrt(0.95 * 0.05 / repeats)
    assert covered / repeats > 0.95 - 4 * error


def test_the_kinds_say_themselves_whether_they_are_recorded() -> None:
    assert {name for name, cls in kinds().items() if cls.empirical} == {"frames"}
