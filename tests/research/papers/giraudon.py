"""Giraudon, Gripon, Loewe and Vermet, Towards an intrinsic definition of robustness for a
classifier."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from robaudit.api.run import Run
from robaudit.methods.radius.easiest import easiest_errors, error_by_share
from tests.research.papers.han import (
    CIFAR_ADV,
    FASHION,
    LINEAR,
    MNIST,
    MNIST_ADV,
    NAMES,
    RESNET,
    correlation,
)
from tests.research.papers.item import (
    ABOVE_0,
    IMAGENET,
    LITE0,
    Claim,
    Floats,
    Part,
    Places,
    Session,
    above,
    all_of,
    at_most,
    correct,
    item,
    judged,
    lower,
    mean,
    measured,
    number,
    table,
    values,
    with_ends,
)
from tests.research.papers.pictures import curves, picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RADII = {
    LINEAR: 1000,
    MNIST: 500,
    MNIST_ADV: 500,
    FASHION: 500,
    CIFAR_ADV: 1000,
    RESNET: 100,
    IMAGENET: 30,
}
"""Images."""
RANDOM = {MNIST: 100, CIFAR_ADV: 600}
HEAT = 1000
CORRUPTIONS = ("gaussian_blur", "fog", "brightness", "contrast", "jpeg")


def radii(session: Session, network: str) -> Run:
    """l2 radii and difficulties."""
    radius = "radius_exact" if network == LINEAR else "radius_attack"
    estimators = [{radius: {"norm": "l2"}}, {"difficulty": {"target": "label"}}]
    images = session.images(RADII[network])
    return session.run(f"giraudon-{network}", network, images, estimators)


def random_radii(session: Session, network: str) -> Run:
    """Radii along random directions, the paper's, with those of an attack beside them."""
    search = {"norm": "l2", "directions": session.draws(1000), "tolerance": 0.05}
    estimators = [
        {"radius_random": search},
        {"radius_attack": {"norm": "l2"}},
        {"difficulty": {"target": "label"}},
    ]
    return session.run(
        f"giraudon-random-{network}", network, session.images(RANDOM[network]), estimators
    )


def on_spheres(session: Session) -> Run:
    """Votes under noise of a fixed norm."""
    noise = {"kind": "uniform", "norm": "l2", "support": "sphere", "eps": [0.25, 0.5, 1, 2, 4, 8]}
    estimators = [{"mc": {"draws": session.draws(20)}}, {"difficulty": {"target": "label"}}]
    return session.run("giraudon-spheres", RESNET, session.images(HEAT), estimators, noise)


def corrupted(session: Session) -> Run:
    """Votes under corruptions."""
    noise = [{"kind": "corruption", "name": list(CORRUPTIONS), "severity": [1, 3, 5]}]
    estimators = [{"mc": {"draws": session.draws(4)}}, {"difficulty": {"target": "label"}}]
    return session.run("giraudon-corrupted", RESNET, session.images(HEAT), estimators, noise)


def with_radii(run: Run, estimator: str = "") -> tuple[Floats, Floats]:
    """Radius (0 where misclassified) and difficulty of each image."""
    name = estimator or next(
        row.estimator for row in run.rows if row.estimator.startswith("radius")
    )
    return np.where(correct(run), values(run, name), 0.0), values(run, "difficulty")


SCORES = (("R_m", False), ("R_nu", True))
"""Names, and whether radii are divided by difficulties."""


def score(r: Floats, g: Floats, nu: bool, at: Places) -> float:
    """R_m, or R_nu, of the images at some places, by the definitions of docs/research/scores.md."""
    used = at[(r[at] == 0) | (g[at] > 0)] if nu else at
    return (
        float((r[used] / np.where(r[used] > 0, g[used], 1.0) if nu else r[used]).mean())
        if len(used)
        else 0.0
    )


def halves(r: Floats, g: Floats, nu: bool, at: Places) -> tuple[float, float, float]:
    """The score of the easier half, of the harder half, and their relative variation."""
    order = at[np.argsort(-g[at], kind="stable")]
    n = len(order) // 2
    easy = score(r, g, nu, order[:n])
    hard = score(r, g, nu, order[len(order) - n :])
    return easy, hard, abs(easy - hard) / (easy + hard) if easy + hard else 0.0


def half(r: Floats, g: Floats, nu: bool, which: int, at: Places) -> float:
    """One number of :func:`halves`."""
    return halves(r, g, nu, at)[which]


def both(session: Session, network: str) -> dict[str, tuple[Floats, Floats]]:
    """Radii and difficulties by search."""
    found = {"attack": with_radii(radii(session, network))}
    if network in RANDOM:
        found["random directions"] = with_radii(
            random_radii(session, network), "radius_random:norm=l2"
        )
    return found


def steadier(name: str, r: Floats, g: Floats) -> Claim:
    """R_nu depends less than R_m on which images were chosen."""

    def gain(at: Places) -> float:
        return half(r, g, False, 2, at) - half(r, g, True, 2, at)

    text = f"{name}: R_nu varies less than R_m between easy and hard images"
    return judged(text, len(r), gain, "relative variation: R_m minus R_nu", ABOVE_0)


def of_halves(r: Floats, g: Floats, nu: bool) -> list[str]:
    """Cells of a table: the score of the easier half, of the harder half, and their relative
    variation."""
    return [with_ends(measured(len(r), partial(half, r, g, nu, k))) for k in range(3)]


@item("giraudon-table1", "Table 1, scores on easy and hard images")
def table1(session: Session) -> Part:
    """R_m and R_nu of both halves."""
    rows = []
    claims = []
    for net in (MNIST, RESNET, FASHION, CIFAR_ADV):
        for search, (r, g) in both(session, net).items():
            chosen = {"all": (r, g)} | ({} if (r > 0).all() else {"correct": (r[r > 0], g[r > 0])})
            for only, (a, b) in chosen.items():
                for name, nu in SCORES:
                    some = f"{only} {len(a)}"
                    rows.append((NAMES[net], search, some, name, *of_halves(a, b, nu)))
                claims.append(steadier(f"{NAMES[net]}, {only} images, {search}", a, b))
    lenet = ("LeNet5, MNIST", 55.2, 24.6, ".38", 1.63, 1.91, ".08")
    resnet = ("ResNet18, CIFAR-10", 11.4, 4.5, ".44", ".68", ".54", ".12")
    paper = table(
        ("network", "R_m easy", "hard", "rel. var.", "R_nu easy", "hard", "rel. var."),
        [lenet, resnet],
    )
    head = ("network", "search", "images", "score", "easy", "hard", "relative variation")
    return Part(
        "The paper (100 images, pixels of an unknown "
        f"scale):\n\n{paper}\n\nHere:\n\n{table(head, rows)}",
        tuple(claims),
    )


@item("giraudon-table2", "Table 2, natural and adversarial training")
def table2(session: Session) -> Part:
    """Scores of two networks on the same images."""
    rows = []
    claims = []
    for plain, robust in ((RESNET, CIFAR_ADV), (MNIST, MNIST_ADV)):
        (r0, g0), (r1, g1) = (with_radii(radii(session, net)) for net in (plain, robust))
        n = min(len(r0), len(r1))
        for name, nu in SCORES:
            ends = [
                with_ends(measured(n, partial(score, r, g, nu))) for r, g in ((r0, g0), (r1, g1))
            ]
            rows.append((f"{NAMES[plain]}; {NAMES[robust]}", name, *ends, n))
            both_ways = partial(score, r1, g1, nu), partial(score, r0, g0, nu)
            text = (
                f"{name} is higher after adversarial training: {NAMES[robust]} against "
                f"{NAMES[plain]}"
            )
            claims.append(judged(text, n, partial(gained, *both_ways), f"{name}, gain", ABOVE_0))
    paper = table(
        ("CIFAR-10, 60 images", "natural", "adversarial"),
        [("R_m", 2.4, 7.1), ("R_nu", ".25", 1.49)],
    )
    found = table(("networks", "score", "natural", "adversarial", "images"), rows)
    body = (
        f"The paper:\n\n{paper}\n\nHere, radii of an attack (upper bounds), in l2 and pixels "
        f"of [0, 1]:\n\n{found}"
    )
    return Part(body, tuple(claims))


def gained(new: Callable[[Places], float], base: Callable[[Places], float], at: Places) -> float:
    """The difference of two statistics of the same images."""
    return new(at) - base(at)


@item("giraudon-fig3", "Figure 3, R_nu against the distance to the best classifier")
def fig3(session: Session) -> Part:
    """Two normal clouds in the plane and logistic regressions around the best one, in closed
    form."""
    noise = np.random.default_rng(0)
    best = np.array([4.0, 0.0, 0.0])
    n = session.draws(8000)
    x = noise.standard_normal((2000, 2)) + np.repeat([[2.0, 0.0], [-2.0, 0.0]], 1000, 0)
    y = np.repeat([1.0, -1.0], 1000)
    distances = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)

    # the same directions at every distance, of length 1 in the paper's metric
    way = noise.standard_normal((n, 3))
    share = noise.random((n, 1))
    way[:, :2] *= share / np.linalg.norm(way[:, :2], axis=1, keepdims=True)
    way[:, 2:] = np.sign(way[:, 2:]) * (1 - share)

    def scores(distance: float) -> tuple[Floats, Floats]:
        beta = best + distance * way
        right = ((beta[:, :2] @ x.T + beta[:, 2:]) * y > 0).mean(1)
        return right / np.linalg.norm(beta[:, :2], axis=1), right

    found = [scores(d) for d in distances]
    unit = float(found[0][0].mean())
    lines = {
        "R_nu": (distances, [one / unit for one, _ in found]),
        "R_nu, all slopes of one size": (distances, [one / found[0][1].mean() for _, one in found]),
    }

    def draw(figure: Figure) -> None:
        ax = figure.subplots()
        curves(ax, lines)
        ax.set(xlabel="distance to the best classifier", ylabel="score, relative")
        ax.legend(frameon=False)

    shown = picture(
        session,
        "giraudon-fig3",
        (4.2, 2.8),
        draw,
        "R_nu against the distance to the best classifier",
    )
    claims = []
    for name, (_, each) in lines.items():
        far = f"score at distance 0 minus score at {distances[-1]:g}"
        claims.append(
            lower(f"R_nu falls away from the best classifier: {name}", each[-1], each[0], far)
        )
        text = f"{name}: it falls smoothly, with every step from .5 on"
        steps = list(zip(distances, each, strict=True))[2:]
        claims.append(
            all_of(
                [
                    lower(text, b, a, f"least sure: score at {near:g} minus score at {far:g}")
                    for (near, a), (far, b) in pairwise(steps)
                ]
            )
        )
    rows = [
        (d, *(with_ends(mean(one[1][i])) for one in lines.values()))
        for i, d in enumerate(distances)
    ]
    body = f"""{shown}

Two clouds N((+-2, 0), I); {n:,} classifiers at each distance, in the same directions at all of
them; tests are about other classifiers. For a binary logistic regression, r = g / |beta| exactly,
so R_nu is the accuracy over |beta|: it rewards a *small* slope, which changes no
decision. The paper does not say how it draws classifiers; with slopes of one size only the
accuracy is left.

{table(("distance", *lines), rows)}"""
    return Part(body, tuple(claims))


def of_points(value: Callable[[Floats, Floats], float], r: Floats, g: Floats, at: Places) -> float:
    """A value of the radii and difficulties of the correct images with g > 0 at some places; 0 if
    there are fewer than two."""
    used = at[(r[at] > 0) & (g[at] > 0)]
    return value(r[used], g[used]) if len(np.unique(used)) > 1 else 0.0


def squared(r: Floats, g: Floats) -> float:
    """R^2 of the line through the origin."""
    slope = (r * g).sum() / (g * g).sum()
    return float(1 - ((r - slope * g) ** 2).sum() / ((r - r.mean()) ** 2).sum())


def correlated(r: Floats, g: Floats) -> float:
    """Pearson's correlation."""
    return correlation(r, g, np.arange(len(r)))


def on_a_line(name: str, r: Floats, g: Floats, limit: float) -> tuple[Claim, Claim]:
    """The radius grows with the difficulty, and is proportional to it with at least an R^2."""
    n = len(r)
    grows = partial(of_points, correlated, r, g)
    line = partial(of_points, squared, r, g)
    text = f"{name}: it is a linear function of g"
    about = "R^2 of the line through the origin"
    return (
        judged(f"{name}: the radius grows with g", n, grows, "correlation", ABOVE_0),
        judged(text, n, line, about, above(limit)),
    )


def about_line(r: Floats, g: Floats) -> tuple[str, str]:
    """Cells of a table: R^2 of the line through the origin, and the correlation."""
    line, grows = (
        with_ends(measured(len(r), partial(of_points, value, r, g)))
        for value in (squared, correlated)
    )
    return line, grows


@item("giraudon-fig4", "Figure 4, radius against difficulty")
def fig4(session: Session) -> Part:
    """Points and the line through the origin."""
    nets = (LINEAR, MNIST, RESNET, CIFAR_ADV)
    points = {net: with_radii(radii(session, net)) for net in nets}

    def draw(figure: Figure) -> None:
        for ax, net in zip(figure.subplots(1, len(nets)), nets, strict=True):
            r, g = points[net]
            used = (r > 0) & (g > 0)
            ax.plot(g[used], r[used], "o", markersize=3, alpha=0.6)
            slope = (r * g)[used].sum() / (g * g)[used].sum()
            ax.plot([0, g[used].max()], [0, slope * g[used].max()], color="#5b626b", linewidth=0.9)
            ax.set(title=NAMES[net], xlabel="difficulty g")
        figure.axes[0].set_ylabel("radius, l2")

    shown = picture(
        session, "giraudon-fig4", (8.4, 2.6), draw, "Radius against difficulty on four networks"
    )
    rows = []
    claims: list[Claim] = []
    for net, (r, g) in points.items():
        used = int(((r > 0) & (g > 0)).sum())
        rows.append((NAMES[net], used, *about_line(r, g)))
        claims += on_a_line(NAMES[net], r, g, 0.9 if net == LINEAR else 0.5)
    body = f"""{shown}

Correct images with g > 0; exact radii of the linear network, of the others those of an attack.
The paper: R^2 = .93 for a logistic regression of MNIST (a line with an intercept, random
directions).

{table(("network", "images", "R^2", "correlation"), rows)}"""
    return Part(body, tuple(claims))


@item("giraudon-imagenet", "Table 1 and figure 4 on ImageNet")
def imagenet(session: Session) -> Part:
    """Scores and the line of a network that the paper does not have."""
    r, g = with_radii(radii(session, IMAGENET))
    claims = (steadier(LITE0, r, g), *on_a_line(LITE0, r, g, 0.5))
    rows = [(name, *of_halves(r, g, nu)) for name, nu in SCORES]
    fit, grows = about_line(r, g)
    body = f"""The paper stops at CIFAR-10. {LITE0} of timm, {len(r)} photos of different
classes among 1,000, l2 radii of an attack in pixels of [0, 1]; {int((r > 0).sum())} photos are
classified correctly.

{table(("score", "easy", "hard", "relative variation"), rows)}

Radius and difficulty: correlation {grows}, R^2 of the line through the
origin {fit}."""
    return Part(body, claims)


@item("giraudon-heat", "Appendix, heat map of the error and mean corruption error")
def heat(session: Session) -> Part:
    """Errors on the easiest images."""
    errors = easiest_errors(on_spheres(session))
    kept = errors.kept()
    levels = [at.strength for at in errors.levels]
    curve = error_by_share(corrupted(session))
    n = errors.images
    each = curve.errors.errors.mean(1)

    def draw(figure: Figure) -> None:
        from robaudit.report.pictures.style import heat_colours

        left, right = figure.subplots(1, 2)
        shown = left.imshow(
            kept,
            aspect="auto",
            origin="lower",
            cmap=heat_colours(),
            vmin=0,
            vmax=1,
            extent=(-0.5, len(levels) - 0.5, 0.5, n + 0.5),
        )
        left.set_xticks(range(len(levels)), [f"{one:g}" for one in levels])
        left.set(xlabel="l2 norm of the noise", ylabel="easiest images kept", title="error")
        left.grid(visible=False)
        figure.colorbar(shown, ax=left)
        right.plot(curve.shares, curve.mean, linewidth=1.8)
        low, high = zip(*(ends for _, ends in curve.band), strict=True)
        right.fill_between([share for share, _ in curve.band], low, high, alpha=0.15, linewidth=0)
        right.set(xlabel="share of the easiest images kept", ylabel="mean corruption error")

    shown = picture(
        session,
        "giraudon-heat",
        (7.4, 2.9),
        draw,
        "Errors on the easiest images by noise norm, and under corruptions by the share kept",
    )
    few = len(each) // 5
    last = int(0.8 * len(each))
    slope = (
        (curve.mean[last - 1] - curve.mean[len(each) // 2]) / 0.3,
        (curve.mean[-1] - curve.mean[last - 1]) / 0.2,
    )

    def hard(at: Places) -> float:
        behind = at >= last
        return (
            float(each[at][behind].mean() - 2 * each[at][~behind].mean())
            if 0 < behind.sum() < len(at)
            else 0.0
        )

    nearest = errors.errors[:, 0]
    everyone = "with all images there is no radius without errors"
    claims = [
        judged(
            everyone,
            n,
            lambda at: float(nearest[at].mean()),
            f"error at norm {levels[0]:g}",
            ABOVE_0,
        ),
        at_most(
            "the easiest half has such a radius",
            errors.errors[: n // 2, 1],
            0.01,
            f"error at norm {levels[1]:g}",
            largest=1.0,
        ),
        at_most(
            "easy images have no corruption error: the easiest fifth",
            each[:few],
            0.05,
            "mean corruption error",
        ),
        judged(
            "the hardest fifth has more than twice the error of the rest",
            len(each),
            hard,
            "its error less twice the others'",
            ABOVE_0,
        ),
    ]
    kinds = ", ".join(one.replace("_", " ") for one in CORRUPTIONS)
    counts = sorted({max(1, n // 4), n // 2, 3 * n // 4, n})
    kept_rows = [(k, *map(number, kept[k - 1])) for k in counts]
    body = f"""{shown}

ResNet20, {n} images (the paper: 300 and a ResNet18 without augmentation); uniform noise on the
sphere; {len(CORRUPTIONS)} corruptions at severities 1, 3 and 5 ({kinds}), of the paper's fifteen
or more. *Mean corruption error* is the mean error, not relative to another network's. The curve
rises by {number(slope[0])} a unit of the share between a half and four fifths, and by
{number(slope[1])} after that.

{table(("kept", *(f"norm {one:g}" for one in levels)), kept_rows)}"""
    return Part(body, tuple(claims))
