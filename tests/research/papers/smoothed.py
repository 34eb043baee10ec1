"""Smoothed robustness analysis: closed forms against sampling; training objectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from robaudit.api.run import Run
from robaudit.methods.radius.curves import CurveSummary
from robaudit.methods.training.margin_moments import logit_moments
from robaudit.methods.training.network import Normalised
from robaudit.models.architectures import mlp
from robaudit.numerics.normal import normal_cdf
from robaudit.numerics.normal_moments import mean_of_larger, probability_of_larger
from tests.research.papers.han import (
    OWN,
    PHOTO_LEVELS,
    of_mc,
    on_photos,
    squared_errors,
)
from tests.research.papers.item import (
    ALL_PHOTOS,
    IMAGENET,
    LITE0,
    TO_TRAIN,
    TRAININGS,
    Claim,
    Floats,
    Part,
    Session,
    Training,
    Verdict,
    at_most,
    correct,
    item,
    lower,
    mean,
    number,
    pixels,
    slug,
    table,
    values,
    with_ends,
)
from tests.research.papers.pictures import panels
from tests.shared import SHARED, card

MLP = "mnist_spectral_mlp"
SIGMAS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
IMAGES = 1000
NODES = 2001


def sampled(session: Session) -> Run:
    """P_c by counting, and with all covariances of the logits."""
    estimators = [{"mc": {"draws": session.draws(4000)}}, "moments"]
    return session.run(
        "smoothed-mlp", MLP, session.images(IMAGES), estimators, {"sigma": list(SIGMAS)}
    )


def network() -> Normalised:
    """The fully connected network, of pixels in [0, 1]."""
    net = mlp()
    about = card(MLP)
    net.load_state_dict(load_file(SHARED / "models" / MLP / "model.safetensors"))
    return Normalised(net, torch.tensor(about["mean"]), torch.tensor(about["std"])).double()


def integrals(m: Tensor, s: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """P_c (eq. 11) and the smoothed margin (eq. 13) of independent normal logits, by quadrature
    (images,)."""
    mine = m.gather(1, c)
    others = torch.ones_like(m).scatter(1, c, 0.0).bool()
    low = (m - 8 * s).amin(1)
    high = (m + 8 * s).amax(1)
    # (images, nodes)
    x = torch.linspace(0, 1, NODES, dtype=m.dtype)[None] * (high - low)[:, None] + low[:, None]
    below = normal_cdf((x[..., None] - m[:, None]) / s[:, None])
    # distribution of the largest other logit
    largest = torch.where(others[:, None], below, 1.0).prod(-1)
    z = (x - mine) / s.gather(1, c)
    density = torch.exp(-z.square() / 2) / (s.gather(1, c) * (2 * torch.pi) ** 0.5)
    return torch.trapezoid(density * largest, x), high - torch.trapezoid(largest, x) - mine[:, 0]


def closed_forms(m: Tensor, s: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """P_c (eq. 14), the smoothed margin (eq. 12, corrected), and as printed, with 2 pi in its
    exponent and error function."""
    rest = m.scatter(1, c, -torch.inf)
    two, at = rest.topk(2, dim=1)
    (m1, m2) = two.T
    (s1, s2) = s.gather(1, at).T
    mine = m.gather(1, c)[:, 0]
    own = s.gather(1, c)[:, 0]
    spread = (s1.square() + s2.square()).sqrt()
    d = m1 - m2
    printed = (spread.square() / (2 * torch.pi)).sqrt() * torch.exp(
        -d.square() / (2 * torch.pi * spread.square())
    ) + m2
    printed = printed + d / 2 * (1 + torch.erf(d / (2 * torch.pi * spread.square()).sqrt()))
    return (
        probability_of_larger(mine, m1, (own.square() + s1.square()).sqrt()),
        mean_of_larger(m1, m2, spread) - mine,
        printed - mine,
    )


def computed(session: Session) -> dict[str, Floats]:
    """All of them by name (sigmas, images)."""
    x = torch.from_numpy(pixels(MLP, session.images(IMAGES)))
    net = network()
    found: dict[str, list[Floats]] = {}
    with torch.no_grad():
        c = net(x).argmax(1, keepdim=True)
        # all values of a layer taken for independent (eqs. 16 and 17)
        moments = [logit_moments(net, x, sigma) for sigma in SIGMAS]
    for m, variance in moments:
        s = variance.sqrt()
        names = (
            "P_c integral",
            "SM integral",
            "P_c closed form",
            "SM closed form",
            "SM as printed",
        )
        for name, one in zip(names, (*integrals(m, s, c), *closed_forms(m, s, c)), strict=True):
            found.setdefault(name, []).append(one.numpy())
    return {name: np.array(each) for name, each in found.items()}


LOSSES: dict[str, dict[str, Any]] = {
    "MCR": {f"d {number(d)}": {"mcr": {"d": d}} for d in (0.5, 0.75, 1, 1.5, 2)},
    "MSCR": {
        f"d {number(d)}, sigma {number(sigma)}": {"mscr": {"d": d, "sigma": sigma}}
        for d, sigma in ((0.5, 0.1), (0.75, 0.1), (1, 0.1), (0.5, 0.7))
    },
    "Zhen": {f"d {number(d)}, sigma .100": {"zhen": {"d": d, "sigma": 0.1}} for d in (0.5, 1)},
    "MH": {f"d {number(d)}": {"hinge": {"d": d}} for d in (0.5, 1)},
    "SCE": {"": "cross_entropy"},
    "SC-SCE": {"sigma .100": {"smoothed_cross_entropy": {"sigma": 0.1}}},
}
"""A grid of hyper-parameters for each objective of the paper."""
EPOCHS = 3
D_ACCURATE = 0.05
ACCURATE: dict[str, Any] = {
    "MCR": {"mcr": {"d": D_ACCURATE}},
    "MSCR": {"mscr": {"d": D_ACCURATE, "sigma": 0.1}},
    "Zhen": {"zhen": {"d": D_ACCURATE, "sigma": 0.1}},
}
"""Objectives that lose little accuracy."""
EPOCHS_ACCURATE = 30
CLEAN = 5000
AUDITED = 500
TARGET = 0.955
"""The clean accuracy of the paper's figures 4 and 5."""
TARGET_ACCURATE = 0.985
"""Of figure 3."""
NEAR = 0.006
"""How far apart the clean accuracies of two networks may be for a comparison at equal accuracy:
what the paper's +-.3 % allows."""
RECIPE: dict[str, Any] = {"batch_size": 500, "lr": 0.01, "schedule": "cosine"}
NETWORK = {
    "architecture": "robaudit:mlp",
    "architecture_options": {"sizes": [784, 512, 512, 512, 10]},
    "orthogonal": True,
}
SIGMAS_OF_CURVE = tuple(round(0.32 * k, 2) for k in range(1, 9))
SHARES = tuple(round(0.1 * k, 1) for k in range(1, 11))
"""Of the noise in a linear corruption."""
STEP = 0.025
"""Of the attack's curve."""
KINDS = ("gaussian", "linear")
Point = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Trained:
    """What the trainings of an objective give."""

    runs: list[Run]
    clean: Floats
    """Whether each test image is right without noise (trainings, images)."""

    @property
    def accuracy(self) -> float:
        """On clean images, mean of the trainings."""
        return float(self.clean.mean())

    def radii(self, attack: str) -> Floats:
        """The linf radius at which an attack succeeds, 0 where misclassified (trainings,
        images)."""
        return np.array(
            [np.where(correct(run), values(run, f"{attack}:norm=linf"), 0.0) for run in self.runs]
        )

    def votes(self, noise: str) -> Floats:
        """Shares of votes for the label under a noise (trainings, levels, images)."""
        return np.array([votes(run, noise) for run in self.runs])

    def of_all(self, noise: str) -> Floats:
        """Those over all levels (trainings, images)."""
        return np.asarray(self.votes(noise).mean(1))

    def summary(self, kind: str) -> str:
        """A curve of each training in one number; of one training with its interval."""
        sums = []
        for run in self.runs:
            (section,) = run.section("curves")
            found = next((one.summary for key, one in section.items() if key.value == kind), None)
            sums.append(found)
        ends = len(sums) == 1
        return ", ".join("-" if one is None else summed(one, ends=ends) for one in sums)


def trained_for(
    session: Session, name: str, objective: Any, epochs: int, seeds: Sequence[int]
) -> Trained:
    """Curves of an orthogonal network with three layers of 512, trained by an objective, and which
    test images it gets right."""
    noise = [
        {"sigma": list(SIGMAS_OF_CURVE)},
        {"kind": "linear", "share": list(SHARES)},
    ]
    attack = {"norm": "linf", "step": STEP, "cap": 0.3, "steps": session.draws(20), "restarts": 1}
    estimators = [
        {"mc": {"draws": 5}},
        {"radius_pgd": attack},
        {"radius_attack": {"norm": "linf"}},
    ]
    training = Training("mnist", NETWORK, objective, TO_TRAIN["mnist"], epochs, RECIPE)
    where = slug(f"smoothed {name}")
    runs = []
    clean = []
    for seed in seeds:
        folder = session.trained(where, training, seed)
        audited = session.images(AUDITED)
        runs.append(session.run(f"{where}-{seed}", folder, audited, estimators, noise))
        everything = session.run(
            f"{where}-{seed}-clean", folder, CLEAN, ["softmax"], {"sigma": [0.1]}
        )
        clean.append(correct(everything).astype(float))
    return Trained(runs, np.array(clean))


def by_objective(session: Session, point: Point) -> Trained:
    """The networks of one of the paper's objectives."""
    objective, setting = point
    loss = LOSSES[objective][setting]
    return trained_for(session, f"{objective} {setting}", loss, EPOCHS, session.seeds)


@item("smoothed-fig6", "Figure 6, probability of the class by integration and by sampling")
def fig6(session: Session) -> Part:
    """Independent normal logits against counting."""
    run = sampled(session)
    found = computed(session)
    counted, correlated = (np.array([values(run, e, s) for s in SIGMAS]) for e in ("mc", "moments"))
    off = np.abs(found["P_c integral"] - counted)
    full = np.abs(correlated - counted)
    lines = {
        "P_c": {
            "sampled": (SIGMAS, list(counted)),
            "independent logits": (SIGMAS, list(found["P_c integral"])),
            "moments": (SIGMAS, list(correlated)),
        },
        "mean absolute error": {
            "sampled": (SIGMAS, [0 * one for one in off]),
            "independent logits": (SIGMAS, list(off)),
            "moments": (SIGMAS, list(full)),
        },
    }
    shown = panels(
        session,
        "smoothed-fig6",
        "P_c by three ways, and the errors",
        lines,
        "sigma",
        "mean over images",
        log="x",
    )
    claims = [
        at_most(
            "outputs are approximately normal and independent: integral and samples agree, "
            f"sigma {s:g}",
            off[i],
            0.02,
            "mean error",
        )
        for i, s in enumerate(SIGMAS)
    ]
    claims.append(
        at_most(
            "independence costs nothing: the integral is as near as with all covariances",
            (off - full).mean(0),
            0.01,
            "error: integral minus moments, mean over all sigma",
        )
    )
    rows = [
        (s, *(with_ends(mean(one[i])) for one in (counted, off, full)))
        for i, s in enumerate(SIGMAS)
    ]
    body = f"""{shown}

{counted.shape[1]} images. P_c is the probability of the class predicted on the clean image.
*Independent logits*: eqs. 16, 17 and 11 of the paper. *moments*: robaudit's estimator, the same
moments with all covariances. The network has two layers of 100 units and no orthogonal weights,
where the paper's has three of 512.

{table(("sigma", "sampled", "error, independent", "error, moments"), rows)}"""
    return Part(body, tuple(claims))


@item("smoothed-fig7", "Figure 7, closed forms against integration")
def fig7(session: Session) -> Part:
    """Eqs. 12 and 14 against eqs. 11 and 13."""
    found = computed(session)
    p = found["P_c closed form"] - found["P_c integral"]
    sm = np.abs(found["SM closed form"] - found["SM integral"])
    scale = np.abs(found["SM integral"]).mean(0)
    printed = np.abs(found["SM as printed"] - found["SM integral"])
    lines = {
        "P_c": {
            "integral": (SIGMAS, list(found["P_c integral"])),
            "closed form": (SIGMAS, list(found["P_c closed form"])),
        },
        "smoothed margin, size": {
            e: (SIGMAS, list(np.abs(found[f"SM {e}"])))
            for e in ("integral", "closed form", "as printed")
        },
    }
    shown = " ".join(
        panels(
            session,
            f"smoothed-fig7-{i}",
            f"{k} by integration and in closed form",
            {k: v},
            "sigma",
            "mean over images",
            log="x",
            across=1,
        )
        for i, (k, v) in enumerate(lines.items())
    )
    claims = [
        at_most(
            "eq. 14 is an upper bound of P_c",
            (p < -1e-6).any(0).astype(float),
            0.01,
            "share of images for which it is not, at any sigma",
            largest=1.0,
        ),
        at_most("eq. 14 is close to P_c", np.abs(p).mean(0), 0.05, "mean error over all sigma"),
        at_most(
            "eq. 12 (corrected) is close to the smoothed margin",
            (sm / scale).mean(0),
            0.05,
            "mean error over all sigma, relative",
        ),
        at_most(
            "eq. 12 as printed is close to the smoothed margin",
            (printed / scale).mean(0),
            0.05,
            "mean error over all sigma, relative",
        ),
        lower(
            "errors are larger for larger variance: P_c",
            np.abs(p[0]),
            np.abs(p[-1]),
            f"error at sigma {SIGMAS[-1]:g} minus error at {SIGMAS[0]:g}",
        ),
        lower(
            "errors are larger for larger variance: smoothed margin",
            sm[0],
            sm[-1],
            f"error at sigma {SIGMAS[-1]:g} minus error at {SIGMAS[0]:g}",
        ),
    ]
    rows = [
        (
            s,
            *(
                with_ends(mean(one[i]))
                for one in (found["P_c integral"], p, found["SM integral"], sm, printed)
            ),
        )
        for i, s in enumerate(SIGMAS)
    ]
    heads = (
        "sigma",
        "P_c",
        "eq. 14 less P_c",
        "smoothed margin",
        "error of eq. 12",
        "error as printed",
    )
    body = f"""{shown}

The smoothed margin is the mean of the largest other logit minus the mean of the class's logit:
negative where the class wins. Its equation 12 is printed with 2 pi where a 2 belongs
([lipschitz.md](../research/lipschitz.md)); both forms are compared.

{table(heads, rows)}"""
    return Part(body, tuple(claims))


@dataclass(frozen=True, slots=True)
class Comparison:
    """A conclusion of the paper: one network has more of something than another."""

    text: str
    value: Callable[[Trained], Floats]
    """Of each training and image (trainings, images)."""
    about: str


def nearest_flip(one: Trained) -> Floats:
    """The radius by the stronger attack."""
    return one.radii("radius_attack")


def under_noise(one: Trained) -> Floats:
    """Accuracy over the levels of Gaussian noise."""
    return one.of_all("gaussian")


def under_corruption(one: Trained) -> Floats:
    """Accuracy over the shares of a linear corruption."""
    return one.of_all("linear")


def clean_images(one: Trained) -> Floats:
    """Accuracy without noise."""
    return one.clean


ATTACK = "mean linf radius, gain"
NOISE = "accuracy under noise, gain"
FALL = "clean accuracy, fall"
LOW = ("MSCR", "d .500, sigma .100")
FAR = ("MSCR", "d 1, sigma .100")
WIDE = ("MSCR", "d .500, sigma .700")
BY_SETTING = (
    (
        Comparison("a larger d gives more adversarial robustness (MSCR)", nearest_flip, ATTACK),
        LOW,
        FAR,
    ),
    (
        Comparison("a larger sigma gives more robustness to noise (MSCR)", under_noise, NOISE),
        LOW,
        WIDE,
    ),
    (
        Comparison("robustness by a larger d costs clean accuracy (MSCR)", clean_images, FALL),
        FAR,
        LOW,
    ),
    (
        Comparison("robustness by a larger sigma costs clean accuracy (MSCR)", clean_images, FALL),
        WIDE,
        LOW,
    ),
    (
        Comparison("SC-SCE costs clean accuracy against SCE", clean_images, FALL),
        ("SC-SCE", "sigma .100"),
        ("SCE", ""),
    ),
)
"""What the second network has more of than the first."""
AT_EQUAL_ACCURACY = (
    (Comparison("MSCR is more robust to noise than MCR", under_noise, NOISE), "MCR", "MSCR"),
    (
        Comparison(
            "MSCR is at least a little more robust to attacks than MCR", nearest_flip, ATTACK
        ),
        "MCR",
        "MSCR",
    ),
    (Comparison("MH is less robust to attacks than MCR", nearest_flip, ATTACK), "MH", "MCR"),
    (Comparison("SCE is less robust to attacks than MCR", nearest_flip, ATTACK), "SCE", "MCR"),
)


def compared(
    text: str, which: Comparison, networks: tuple[Trained, Trained], target: float | None = None
) -> Claim:
    """A comparison of two networks whose clean accuracies are about the same, and near the target
    if there is one; else undecided."""
    one, other = networks
    both = f"clean accuracies {number(one.accuracy)} and {number(other.accuracy)}"
    if abs(one.accuracy - other.accuracy) > NEAR:
        return Claim(text, Verdict.OPEN, f"{both}: more than {number(NEAR)} apart, not compared")
    if target is not None and max(abs(n.accuracy - target) for n in networks) > NEAR / 2:
        return Claim(text, Verdict.OPEN, f"{both}: not within {number(NEAR / 2)} of the paper's")
    return lower(text, which.value(one), which.value(other), f"{both}; {which.about}")


def equals(found: dict[Point, Trained], a: str, b: str) -> tuple[Point, Point]:
    """The settings of two objectives with about the same clean accuracy, as near to the target as
    there are; without any, the two that are least apart."""

    def apart(pair: tuple[Point, Point]) -> float:
        return abs(found[pair[0]].accuracy - found[pair[1]].accuracy)

    def off(pair: tuple[Point, Point]) -> float:
        return abs((found[pair[0]].accuracy + found[pair[1]].accuracy) / 2 - TARGET)

    pairs = [(one, other) for one in found if one[0] == a for other in found if other[0] == b]
    near = [pair for pair in pairs if apart(pair) <= NEAR]
    return min(near, key=off) if near else min(pairs, key=apart)


def words(point: Point) -> str:
    """An objective and its setting."""
    return ", ".join(filter(None, point))


def curves_of(session: Session, name: str, shown: dict[str, Trained]) -> str:
    """Pictures of the accuracy under attacks, noise and corruption, means of the trainings."""
    radii = [STEP * k for k in range(12)]
    attacked = {
        label: [(one.radii("radius_pgd") > r).mean(0) for r in radii]
        for label, one in shown.items()
    }
    noisy, linear = (
        {label: list(one.votes(kind).mean(0)) for label, one in shown.items()} for kind in KINDS
    )
    panes = {
        "linf attack": (radii, attacked),
        "Gaussian noise, sigma": (SIGMAS_OF_CURVE, noisy),
        "linear corruption, gamma": ([1 - share for share in SHARES], linear),
    }
    return " ".join(
        panels(
            session,
            f"{name}-{i}",
            f"Accuracy under {title}",
            {title: {label: (x, each) for label, each in lines.items()}},
            title,
            "accuracy",
            across=1,
        )
        for i, (title, (x, lines)) in enumerate(panes.items())
    )


OF_CURVES = ("objective", "accuracy", "ASR linf", "AMS", "gamma at 50 %", "nearest, linf")


def row_of_curves(label: str, one: Trained) -> tuple[str, ...]:
    """A row of the table below the curves."""
    return (
        label,
        with_ends(mean(one.clean.mean(0))),
        *(one.summary(kind) for kind in ("linf", "noise", "linear")),
        with_ends(mean(nearest_flip(one).mean(0))),
    )


def about_curves(session: Session) -> str:
    """What the numbers of the table are."""
    return f"""ASR: the plain attack of the paper with {session.draws(20)} steps (200 there) and one
start (five), linf steps of {number(STEP)} up to .3. It also depends on how weak the attack is on a
network: *nearest* is the mean radius that `radius_attack` finds, 0 where misclassified, and the
tests use it. Accuracies are of {CLEAN:,} test images, the others of {session.images(AUDITED)}."""


@item("smoothed-fig2", "Figures 2, 4 and 5, training objectives")
def fig2(session: Session) -> Part:
    """Accuracy, ASR, AMS and curves of networks trained by the objectives."""
    found = {
        (objective, setting): by_objective(session, (objective, setting))
        for objective, settings in LOSSES.items()
        for setting in settings
    }
    claims = [
        lower(one.text, one.value(found[a]), one.value(found[b]), one.about)
        for one, a, b in BY_SETTING
    ]
    for one, a, b in AT_EQUAL_ACCURACY:
        pair = equals(found, a, b)
        text = f"at equal clean accuracy, {one.text} ({' against '.join(map(words, pair))})"
        claims.append(compared(text, one, (found[pair[0]], found[pair[1]])))
    chosen = {
        name: min(
            ((name, setting) for setting in LOSSES[name]),
            key=lambda point: abs(found[point].accuracy - TARGET),
        )
        for name in LOSSES
    }
    rows = [
        row_of_curves(words(point) + " *" * (point in chosen.values()), one)
        for point, one in found.items()
    ]
    shown = curves_of(
        session, "smoothed-fig2", {name: found[point] for name, point in chosen.items()}
    )
    trained = session.to_train("mnist", TO_TRAIN["mnist"])
    body = f"""{shown}

`robaudit.methods.training`: three orthogonal layers of 512, {trained:,} training images of MNIST,
{EPOCHS} epochs in batches of 500, a learning rate of .01 that falls to 0; means of
{len(session.seeds)} trainings of each of {len(found)} settings. The paper has three trainings each
of a hundred settings, and 300 epochs. The curves show the setting of each objective with the
accuracy nearest to {100 * TARGET:g} % (* in the table; the paper takes the largest ASR within .3 %
of it). The tests at equal clean accuracy take the two settings that are at most
{100 * NEAR:g} % apart and nearest to {100 * TARGET:g} %, whatever their robustness. {TRAININGS}
Zhen's d is on the scale of the others; the paper's 5 to 30 was not tried, and what the paper says
of Zhen at 95.5 % is that all are alike, which no test can confirm. Not made: the heat maps of
figure 2 (the table has a few of their points), and curves under attacks in l2. The paper's figure 3
has a clean accuracy of 98.5 %. Here MCR with d .1 reaches 98.2 % after 30 epochs (six minutes of a
core); all three objectives: `.venv/bin/python -m tests.research.papers smoothed-fig3 --device
cuda`.

{about_curves(session)} Where there are several trainings, ASR, AMS and gamma are given for each.

{table(OF_CURVES, rows)}"""
    return Part(body, tuple(claims))


AT_HIGH_ACCURACY = (
    (Comparison("MSCR is more robust to attacks than MCR", nearest_flip, ATTACK), "MCR", "MSCR"),
    (Comparison("MSCR is more robust to noise than MCR", under_noise, NOISE), "MCR", "MSCR"),
    (Comparison("MCR is more robust to attacks than Zhen", nearest_flip, ATTACK), "Zhen", "MCR"),
    (Comparison("MSCR is more robust to noise than Zhen", under_noise, NOISE), "Zhen", "MSCR"),
    (
        Comparison(
            "Zhen is more robust to linear corruption than MCR", under_corruption, "accuracy, gain"
        ),
        "MCR",
        "Zhen",
    ),
)


@item("smoothed-fig3", "Figure 3, training objectives at a high clean accuracy")
def fig3(session: Session) -> Part:
    """Objectives that cost no accuracy."""
    found = {
        name: trained_for(session, f"{name} accurate", loss, EPOCHS_ACCURATE, session.seeds[:1])
        for name, loss in ACCURATE.items()
    }
    claims = [
        compared(
            f"at a clean accuracy of 98.5 %, {one.text}", one, (found[a], found[b]), TARGET_ACCURATE
        )
        for one, a, b in AT_HIGH_ACCURACY
    ]
    rows = [
        row_of_curves(words((name, f"d {number(D_ACCURATE)}")), one) for name, one in found.items()
    ]
    body = f"""{curves_of(session, "smoothed-fig3", found)}

Networks and data of [smoothed-fig2](#smoothed-fig2-figures-2-4-and-5-training-objectives), with
{EPOCHS_ACCURATE} epochs, a margin d of {number(D_ACCURATE)} and one training each, so the tests are
about these networks and other images, not about other trainings. The paper's networks are within
.3 % of {100 * TARGET_ACCURATE:g} %.

{about_curves(session)}

{table(OF_CURVES, rows)}"""
    return Part(body, tuple(claims))


GAMMAS = (0.75, 0.5, 0.35, 0.25, 0.15)
"""Shares of the photo in a linear corruption."""


def corrupted_photos(session: Session) -> Run:
    """Votes of the ImageNet network under linear corruption."""
    noise = {"kind": "linear", "share": [round(1 - gamma, 2) for gamma in GAMMAS]}
    estimators = [{"mc": {"draws": session.draws(10)}}]
    return session.run("smoothed-imagenet", IMAGENET, session.images(ALL_PHOTOS), estimators, noise)


@item("smoothed-imagenet", "Figures 6 and 3 (d) on ImageNet")
def imagenet(session: Session) -> Part:
    """Whether logits are normal, and linear corruption, on a network that the paper does not
    have."""
    run = on_photos(session)
    counted, normal = (
        np.array([values(run, e, s) for s in PHOTO_LEVELS]) for e in ("mc", "logit_gaussian")
    )
    claims = tuple(
        at_most(
            f"{LITE0}: outputs are near enough to normal for logit_gaussian to be within .02 of "
            f"mc, sigma {s:g}",
            each,
            1e4 * 0.02**2,
            OWN,
        )
        for s, each in zip(
            PHOTO_LEVELS, squared_errors(run, "logit_gaussian", PHOTO_LEVELS), strict=True
        )
    )
    corrupted = corrupted_photos(session)
    right = correct(corrupted).astype(float)
    shares = votes(corrupted, "linear")
    rows = [
        (
            s,
            with_ends(mean(counted[i])),
            with_ends(mean(np.abs(normal[i] - counted[i]))),
            number(of_mc(run, s)),
        )
        for i, s in enumerate(PHOTO_LEVELS)
    ]
    by_gamma = [("1 (clean)", with_ends(mean(right)))]
    by_gamma += [
        (number(gamma), with_ends(mean(one))) for gamma, one in zip(GAMMAS, shares, strict=True)
    ]
    head = ("sigma", "sampled", "error of logit_gaussian", "of mc")
    body = f"""The paper stops at MNIST, and its eqs. 16 and 17 at fully connected networks. Here
the moments of the logits of {LITE0} (timm) are those of 96 copies, with all covariances
(`logit_gaussian`, which corrects for skewness, and counts votes where the margins of an image are
clearly not normal), on {counted.shape[1]} photos. *Of mc*: the part of the error that `mc`'s own
{session.draws(200)} copies make. The tests take squared errors less the variance of `mc`, against
.02 squared; what the 96 copies cost counts against `logit_gaussian`.

{table(head, rows)}

Accuracy under linear corruption, gamma x + (1 - gamma) n, {len(right)} photos with
{session.draws(10)} draws each. People recognise about half at gamma .25, of 10 classes where this
network has 1,000:

{table(("gamma", "accuracy"), by_gamma)}"""
    return Part(body, claims)


def votes(run: Run, noise: str) -> Floats:
    """Shares of votes for the label under a noise (levels, images)."""
    return np.array(
        [
            1 - one.label_errors
            for key, one in run.table.items()
            if key.estimator == "mc" and key.at.noise == noise
        ]
    )


def summed(one: CurveSummary, *, ends: bool = True) -> str:
    """A curve in one number, with its interval."""
    if one.estimate is None:
        return "-"
    value = f"{one.relation.value or ''}{number(one.estimate.value)}"
    bounds = one.estimate.bounds
    if bounds is None or not ends:
        return value
    return f"{value} [{number(bounds[0])}, {number(bounds[1])}]"
