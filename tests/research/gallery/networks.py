"""ResNet20 beside two small networks that were trained to resist."""

from __future__ import annotations

from robaudit.api.run import Run
from robaudit.estimates import Estimate
from robaudit.methods.certificates.accuracy import CertifiedAccuracy
from tests.research.gallery.classes import CIFAR
from tests.research.gallery.gallery import (
    Content,
    Gallery,
    accuracy_under,
    apart,
    clean_accuracy,
    group,
    images,
    mean_difference,
    network,
    percent,
    right_shares,
    table,
    values,
    with_ends,
)

ORDINARY = "resnet20"
ADVERSARIAL = "adversarial"
CERTIFIED = "certified"
MODELS = {
    ORDINARY: "cifar10_resnet20",
    ADVERSARIAL: "cifar10_cnn_a_adv",
    CERTIFIED: "cifar10_cnn_a_mix",
}
_LEVELS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.25)
_SMOOTHED = 0.1
_TRAINED = 2 / 255


def networks(gallery: Gallery) -> Content:
    """Accuracy and robustness against the noise level, and what is certified."""
    content = Content(
        about="Three networks on CIFAR-10: ResNet20, trained as usual, and twice the same "
        "network of two convolutions, trained against attacks of 2/255 (adversarial) and with "
        "attacks and proven bounds of that size (certified). None was trained with the noise of "
        "this page: 500 images, 32 copies each. What the majority vote under noise of sigma 0.1 "
        "provably keeps was computed for the first 100.",
    )
    runs = {name: _under_noise(gallery, content, name) for name in MODELS}
    votes = {name: _certified(gallery, content, name) for name in MODELS}
    labels = list(MODELS)
    ordinary, *others = runs.values()
    gallery.plot(
        content,
        "networks-levels",
        ordinary,
        "levels",
        "Accuracy and robustness of the three networks against sigma; the curves of accuracy cross",
        with_=others,
        label=labels,
    )
    ordinary_vote, *other_votes = votes.values()
    gallery.plot(
        content,
        "networks-certified",
        ordinary_vote,
        "certified",
        "Certified accuracy of the vote against the radius",
        with_=other_votes,
        label=labels,
    )
    _tables(content, runs, votes)
    proof = gallery.run(
        content,
        "certified-proof",
        network(MODELS[CERTIFIED]),
        images(MODELS[CERTIFIED], 100, CIFAR),
        noise={"sigma": []},
        estimators=["margin_radius", "radius_attack"],
    )
    _sentences(content, runs, votes, proof)
    return content


def _under_noise(gallery: Gallery, content: Content, name: str) -> Run:
    return gallery.run(
        content,
        name,
        network(MODELS[name]),
        images(MODELS[name], 500, CIFAR),
        noise={"sigma": list(_LEVELS)},
        estimators=[{"mc": {"draws": 32}}],
    )


def _certified(gallery: Gallery, content: Content, name: str) -> Run:
    return gallery.run(
        content,
        f"{name}-vote",
        network(MODELS[name]),
        images(MODELS[name], 100, CIFAR),
        noise={"sigma": [_SMOOTHED]},
        estimators=[{"certified_radius": {"draws": 1000}}],
    )


def _accuracy(run: Run, level: float) -> Estimate:
    return accuracy_under(run, "gaussian", level).population


def _robustness(run: Run, level: float) -> Estimate:
    return group(run, "mc", "gaussian", level).mean.population


def _certificates(run: Run) -> CertifiedAccuracy:
    (found,) = run.section("certified")
    assert isinstance(found, CertifiedAccuracy)
    return found


def certified_accuracy(run: Run, radius: float) -> Estimate:
    """The certified accuracy of a run with one result."""
    return _certificates(run).at(radius).estimate


def _tables(content: Content, runs: dict[str, Run], votes: dict[str, Run]) -> None:
    clean = ("no noise", *(with_ends(clean_accuracy(run)) for run in runs.values()))
    rows = [clean]
    rows += [
        (f"{level:g}", *(with_ends(_accuracy(run, level)) for run in runs.values()))
        for level in _LEVELS
    ]
    content.tables.append(f"Accuracy under noise, by sigma:\n\n{table(('accuracy', *runs), rows)}")
    rows = [
        (f"{level:g}", *(with_ends(_robustness(run, level)) for run in runs.values()))
        for level in _LEVELS
    ]
    content.tables.append(
        "Share of noisy copies that keep the class, by "
        f"sigma:\n\n{table(('p_robust', *runs), rows)}"
    )
    rows = [
        (f"{radius:g}", *(with_ends(certified_accuracy(run, radius)) for run in votes.values()))
        for radius in (0.0, 0.1, 0.2)
    ]
    content.tables.append(
        "Certified accuracy of the vote under noise of sigma 0.1, by l2 radius:\n\n"
        + table(("certified", *votes), rows)
    )


def _median(run: Run, estimator: str) -> float:
    """The median linf radius."""
    (found,) = [one for one in run.summary() if one.key.estimator == f"{estimator}:norm=linf"]
    return found.median.population.value


def _sentences(content: Content, runs: dict[str, Run], votes: dict[str, Run], proof: Run) -> None:
    ordinary, adversarial, certified = runs.values()
    content.say(
        f"Without noise ResNet20 is right on {with_ends(clean_accuracy(ordinary))} of the images "
        f"and the certified network on {with_ends(clean_accuracy(certified))}; at sigma 0.02, five "
        "grey levels of 255, ResNet20 still leads, and at 0.05 it is behind: "
        f"{with_ends(_accuracy(ordinary, 0.05))} against {with_ends(_accuracy(certified, 0.05))}.",
        if_=apart(_accuracy(certified, 0.02), _accuracy(ordinary, 0.02))
        and apart(_accuracy(ordinary, 0.05), _accuracy(certified, 0.05)),
    )
    content.say(
        f"At sigma 0.1 ResNet20 is right on {with_ends(_accuracy(ordinary, 0.1))}, so which "
        "network is better is a question about the noise: accuracy without noise answers it only "
        "up to a sigma between 0.02 and 0.05.",
        if_=apart(_accuracy(ordinary, 0.1), _accuracy(adversarial, 0.1)),
    )
    kept = mean_difference(
        *(values(run, "mc", "gaussian", 0.1) for run in (adversarial, certified))
    )
    right = mean_difference(
        *(right_shares(run, "gaussian", 0.1) for run in (adversarial, certified))
    )
    content.say(
        "The two trained networks disagree about what robust means: at sigma 0.1 the certified one "
        f"keeps fewer of its predictions than the adversarial one (p_robust differs by "
        f"{with_ends(kept)}, paired by image) and more of its copies are right "
        f"({with_ends(right)}).",
        if_=kept.upper is not None
        and kept.upper < 0
        and right.lower is not None
        and right.lower > 0,
    )
    wrong = _certificates(votes[ORDINARY]).wrong.estimate
    content.say(
        "The vote under noise tells the same story with proofs: at an l2 radius of 0.1 it is right "
        f"for {with_ends(certified_accuracy(votes[CERTIFIED], 0.1), 2)} of the images on the "
        f"certified network and for {with_ends(certified_accuracy(votes[ORDINARY], 0.1), 2)} on "
        f"ResNet20, whose vote is not undecided but certainly wrong: for {with_ends(wrong, 2)} of "
        "the images it is certified for another class.",
        if_=wrong.value > 0.5
        and apart(
            certified_accuracy(votes[ORDINARY], 0.1), certified_accuracy(votes[CERTIFIED], 0.1)
        ),
    )
    proven, attacked = (_median(proof, name) for name in ("margin_radius", "radius_attack"))
    content.say(
        "What a certificate says depends on who proves it: the certified network was trained with "
        f"proofs for changes of 2/255 = {_TRAINED:.4f} in each pixel, the product of the norms of "
        f"its layers proves {proven:.5f} for the median image, and attacks find a change of "
        f"{attacked:.4f}.",
        if_=proven < _TRAINED / 100 and attacked > _TRAINED,
    )
    content.surprise = (
        f"A network that is right on {percent(clean_accuracy(certified).value)} of CIFAR-10 beats "
        f"one that is right on {percent(clean_accuracy(ordinary).value)} as soon as the noise "
        "reaches a sigma of 0.05, 13 grey levels of 255."
    )
