"""Rice, Bair, Zhang and Kolter, Robustness between the worst and average case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robaudit.api.run import Run
from robaudit.methods.intermediate_q.qnorm_path import QNormPath
from tests.research.papers.han import CIFAR_ADV, CIFAR_MIX, MNIST, MNIST_ADV, NAMES, RESNET
from tests.research.papers.item import (
    IMAGENET,
    LITE0,
    TO_TRAIN,
    TRAININGS,
    Claim,
    Floats,
    Part,
    Session,
    Training,
    at_most,
    item,
    lower,
    mean,
    slug,
    table,
    values,
    with_ends,
)
from tests.research.papers.pictures import panels

BOX = {
    MNIST: (0.3, 100, 2000),
    MNIST_ADV: (0.3, 100, 2000),
    CIFAR_MIX: (0.03, 60, 500),
    CIFAR_ADV: (0.03, 200, 500),
    RESNET: (0.03, 30, 500),
}
"""Half-width of the box, images, and copies for plain Monte Carlo: those of the paper."""
SPATIAL = {CIFAR_MIX: 300}
Q = (1, 10, 100, 1000)


def in_box(session: Session, network: str) -> Run:
    """Norms of the loss in the box, and the attack."""
    eps, images, copies = BOX[network]
    estimators = [
        {"qnorm_mc": {"draws": session.draws(copies)}},
        "qnorm_path",
        "adversarial_loss",
    ]
    return session.run(
        f"rice-box-{network}",
        network,
        session.images(images),
        estimators,
        {"kind": "uniform", "eps": [eps]},
    )


def in_space(session: Session, network: str) -> Run:
    """The same for flips, scales, rotations and shifts."""
    estimators = [
        {"qnorm_mc": {"draws": session.draws(500)}},
        "qnorm_path",
        {"adversarial_loss": {"restarts": 3}},
    ]
    return session.run(
        f"rice-spatial-{network}",
        network,
        session.images(SPATIAL[network]),
        estimators,
        {"kind": "spatial", "size": [1]},
    )


PHOTOS = 30
"""Of ImageNet."""
PHOTO_Q = (1, 100)


def on_photos(session: Session) -> Run:
    """Norms of the loss of the ImageNet network in a box."""
    q = list(PHOTO_Q)
    estimators = [
        {"qnorm_mc": {"draws": session.draws(500), "q": q}},
        {"adversarial_loss": {"restarts": 1}},
    ]
    noise = {"kind": "uniform", "eps": [0.03]}
    return session.run("rice-imagenet", IMAGENET, session.images(PHOTOS), estimators, noise)


COPIES = (50, 200, 800, 3200, 12_800)
TEMPERATURES = (12, 20, 40, 80)
GROWING = 60
"""Images."""


def growing(session: Session, network: str) -> Run:
    """Both estimators with growing budgets."""
    estimators = [
        {"qnorm_mc": {"draws": session.draws(n), "q": [1, 100], "label": f"mc-{n}"}} for n in COPIES
    ]
    estimators += [
        {"qnorm_path": {"temperatures": n, "q": [1, 100], "label": f"path-{n}"}}
        for n in TEMPERATURES
    ]
    noise = {"kind": "uniform", "eps": [BOX[network][0]]}
    return session.run(
        f"rice-growing-{network}", network, session.images(GROWING), estimators, noise
    )


def uniform(eps: float) -> dict[str, Any]:
    """Noise in a box of this half-width."""
    return {"kind": "uniform", "eps": eps}


def by_copies(q: int, draws: int, eps: float) -> dict[str, Any]:
    """The norm of the loss in a box, by plain copies."""
    return {"qnorm_mc": {"q": q, "draws": draws, "noise": uniform(eps)}}


def by_path(q: int, eps: float) -> dict[str, Any]:
    """The same, by path sampling with the paper's budget."""
    return {"qnorm_path": {"q": q, "draws": 25, "steps": 2, "noise": uniform(eps)}}


EPS = 0.3
"""Of MNIST."""
CIFAR_EPS = 0.03
TRAINED_Q = (10, 100, 1000)
OBJECTIVES: dict[str, Any] = {
    "standard": "cross_entropy",
    "MC q = 1": by_copies(1, 50, EPS),
    **{f"MC q = {q:,}": by_copies(q, 50, EPS) for q in TRAINED_Q},
    **{f"path q = {q:,}": by_path(q, EPS) for q in TRAINED_Q},
}
"""The first two are MNIST networks of table 1."""
IMAGES_TRAINED = 10_000
EPOCHS = 3


def trained_by_norm(session: Session, name: str) -> list[Run]:
    """A network with one hidden layer, trained on MNIST by one of the objectives, in the box of
    table 1; a run for each training."""
    net = {"architecture": "robaudit:mlp", "architecture_options": {"sizes": [784, 128, 10]}}
    training = Training("mnist", net, OBJECTIVES[name], IMAGES_TRAINED, EPOCHS)
    return evaluated_trainings(session, f"rice-{slug(name)}", training, Evaluation(EPS, 200, 2000))


CIFAR_OBJECTIVES: dict[str, Any] = {
    "standard": "cross_entropy",
    "MC q = 1": by_copies(1, 20, CIFAR_EPS),
    "PGD-10": {"pgd": {"eps": CIFAR_EPS, "steps": 10}},
}
"""Those of table 1."""
CIFAR_EPOCHS = 15


def trained_on_cifar(session: Session, name: str) -> list[Run]:
    """A small CNN, trained on CIFAR-10 by an objective of table 1; a run for each training."""
    options = {"in_channels": 3, "image_size": 32}
    net = {"architecture": "robaudit:small_cnn", "architecture_options": options}
    training = Training("cifar10", net, CIFAR_OBJECTIVES[name], TO_TRAIN["cifar10"], CIFAR_EPOCHS)
    where = f"rice-cifar10-{slug(name)}"
    return evaluated_trainings(session, where, training, Evaluation(CIFAR_EPS, 100, 500))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Half-width of the box, images, and copies for plain Monte Carlo."""

    eps: float
    images: int
    copies: int


def evaluated_trainings(
    session: Session, name: str, training: Training, evaluation: Evaluation
) -> list[Run]:
    """Norms of the loss of a network in a box; a run for each training."""
    copies = session.draws(evaluation.copies)
    estimators = [{"qnorm_mc": {"draws": copies}}, "qnorm_path", "adversarial_loss"]
    images = session.images(evaluation.images)
    runs = []
    for seed in session.seeds:
        folder = session.trained(name, training, seed)
        runs.append(
            session.run(f"{name}-{seed}", folder, images, estimators, uniform(evaluation.eps))
        )
    return runs


NAMES_OF_Q = {q: f"q = {q:,}" for q in Q}


def norms(runs: Sequence[Run], estimator: str, several: Sequence[int] = Q) -> dict[int, Floats]:
    """The values of each training and image by q (trainings, images)."""
    return {q: np.array([values(run, f"{estimator}:q={q}") for run in runs]) for q in several}


def largest(runs: Sequence[Run]) -> Floats:
    """The adversarial loss of each training and image (trainings, images)."""
    return np.array([values(run, "adversarial_loss") for run in runs])


def shown(each: Floats) -> str:
    """The mean of the trainings; in brackets how many images have a value, if not all."""
    found = mean(each.mean(0))
    return with_ends(found) + (f" ({found.images})" if found.images < each.shape[1] else "")


def evaluated(runs: Sequence[Run], name: str) -> tuple[tuple[str, ...], ...]:
    """Rows of a table like the paper's."""
    found = [
        (name, e, *(shown(one) for one in norms(runs, e).values()), "")
        for e in ("qnorm_mc", "qnorm_path")
    ]
    return (*found, (name, "adversarial_loss", "", "", "", "", shown(largest(runs))))


LACKING = """A number in brackets: so many of the images have a value. `qnorm_path` gives none
where its chains disagree, have not settled, or have nothing to follow; tests are about the images
that have both values, which may be easier than the others."""


def ordered(runs: Sequence[Run], name: str) -> list[Claim]:
    """The paper's conclusions about both estimators on one network, of one training or several."""
    plain = norms(runs, "qnorm_mc")
    path = norms(runs, "qnorm_path")
    worst = largest(runs)
    claims = [higher(name, q, plain, path) for q in (100, 1000)]
    claims += [agreeing(name, q, plain, path) for q in (1, 10)]
    rising = f"{name}: values rise from the average to the worst case"
    for a, b, text in (
        (path[1], path[10], "q = 10 less q = 1"),
        (path[100], path[1000], "q = 1,000 less q = 100"),
        (path[1000], worst, "attack less q = 1,000"),
    ):
        claims.append(lower(rising, a, b, text))
    return claims


def higher(name: str, q: int, plain: dict[int, Floats], path: dict[int, Floats]) -> Claim:
    """Path sampling reaches what plain copies do not."""
    text = f"{name}: path sampling gives higher values than plain copies, q = {q:,}"
    return lower(text, plain[q], path[q], "gain")


def agreeing(name: str, q: int, plain: dict[int, Floats], path: dict[int, Floats]) -> Claim:
    """Both estimators agree to a tenth."""
    text = f"{name}: both agree where plain copies suffice, q = {q}"
    apart = np.abs(plain[q] - path[q]) / np.maximum(path[q], 1e-9)
    return at_most(text, apart, 0.1, "mean relative difference")


PAPER = [
    ("MNIST, standard", ".043", ".140", ".251", ".268", ".043", ".160", "1.420", "4.456", "11.649"),
    ("MNIST, MC q = 1", ".032", ".084", ".143", ".154", ".032", ".088", ".692", "2.133", "7.363"),
    ("MNIST, PGD-50", ".039", ".051", ".076", ".081", ".039", ".048", ".101", ".187", ".270"),
    (
        "CIFAR-10, standard",
        ".453",
        ".787",
        "1.153",
        "1.216",
        ".453",
        ".841",
        "2.718",
        "4.991",
        "18.142",
    ),
    (
        "CIFAR-10, MC q = 1",
        ".405",
        ".532",
        ".717",
        ".756",
        ".405",
        ".546",
        "1.490",
        "3.140",
        "14.240",
    ),
    ("CIFAR-10, PGD-10", ".733", ".734", ".743", ".761", ".733", ".734", ".743", ".796", "1.411"),
]
HEAD = ("network", *(f"MC {q:,}" for q in Q), *(f"path {q:,}" for q in Q), "adversarial")
OURS = ("network", "estimator", *NAMES_OF_Q.values(), "largest")


@item("rice-table1", "Table 1, norms of the loss in a box")
def table1(session: Session) -> Part:
    """All networks, and the trade-off of adversarial training."""
    runs = {net: [in_box(session, net)] for net in BOX}
    claims = [
        claim
        for net in (MNIST, RESNET, MNIST_ADV, CIFAR_ADV)
        for claim in ordered(runs[net], NAMES[net])
    ]
    for plain, robust in ((MNIST, MNIST_ADV), (RESNET, CIFAR_ADV)):
        a = norms(runs[plain], "qnorm_path")
        b = norms(runs[robust], "qnorm_path")
        n = min(a[1].shape[1], b[1].shape[1])
        pair = f"{NAMES[robust]} against {NAMES[plain]}"
        claims.append(
            lower(
                f"adversarial training costs at q = 1: {pair}",
                a[1][:, :n],
                b[1][:, :n],
                "loss, gain",
            )
        )
        claims.append(
            lower(f"it helps at q = 1,000: {pair}", b[1000][:, :n], a[1000][:, :n], "loss, fall")
        )
    counts = ", ".join(f"{len(run.table.ids)} ({NAMES[net]})" for net, (run,) in runs.items())
    body = f"""The paper:

{table(HEAD, PAPER)}

Here: eps .3 on MNIST, .03 on CIFAR-10; means over {counts} images.

{table(OURS, [row for net, each in runs.items() for row in evaluated(each, NAMES[net])])}

{LACKING}"""
    return Part(body, tuple(claims))


@item("rice-cifar10", "Table 1, networks of CIFAR-10 trained here")
def cifar10(session: Session) -> Part:
    """The rows of table 1 that need training."""
    runs = {name: trained_on_cifar(session, name) for name in CIFAR_OBJECTIVES}
    path = {name: norms(each, "qnorm_path") for name, each in runs.items()}
    claims = ordered(runs["standard"], "CIFAR-10 small CNN, standard")
    for text, q, less, more, about in (
        ("training at q = 1 helps at q = 1", 1, "MC q = 1", "standard", "loss, fall"),
        ("training at q = 1 helps at q = 1,000", 1000, "MC q = 1", "standard", "loss, fall"),
        ("PGD costs at q = 1", 1, "standard", "PGD-10", "loss, gain"),
        ("PGD helps at q = 1,000", 1000, "PGD-10", "standard", "loss, fall"),
        ("at q = 1 training at q = 1 is better than PGD", 1, "MC q = 1", "PGD-10", "loss, fall"),
    ):
        claims.append(lower(f"CIFAR-10: {text}", path[less][q], path[more][q], about))
    seen = len(runs["standard"][0].table.ids)
    trained = session.to_train("cifar10", TO_TRAIN["cifar10"])
    rows = [row for name, each in runs.items() for row in evaluated(each, name)]
    body = f"""The paper's rows are above
([rice-table1](#rice-table1-table-1-norms-of-the-loss-in-a-box)). Here: `small_cnn`, {trained:,}
images of CIFAR-10 (the training set is not at hand: the first test images), {CIFAR_EPOCHS}
epochs, 20 copies or 10 steps of PGD, eps .03; means of
{len(session.seeds)} trainings on {seen} other images. The networks are small and trained on little,
so their losses are larger than the paper's, and the box changes them less. {TRAININGS}

{table(("training", *OURS[1:]), rows)}

{LACKING}"""
    return Part(body, tuple(claims))


@item("rice-imagenet", "Table 1 on ImageNet")
def imagenet(session: Session) -> Part:
    """Norms of the loss of a network that the paper does not have."""
    runs = [on_photos(session)]
    plain = norms(runs, "qnorm_mc", PHOTO_Q)
    worst = largest(runs)
    rising = f"{LITE0}: values rise from the average to the worst case"
    claims = (
        lower(rising, plain[1], plain[100], "q = 100 less q = 1"),
        lower(rising, plain[100], worst, "attack less q = 100"),
    )
    head = (*(NAMES_OF_Q[q] for q in PHOTO_Q), "largest")
    row = (*(shown(plain[q]) for q in PHOTO_Q), shown(worst))
    body = f"""The paper stops at CIFAR-10. {LITE0} of timm, {plain[1].shape[1]} photos, eps .03;
`qnorm_mc` with {session.draws(500)} copies, `adversarial_loss` with one start. Path sampling would
take two minutes of a core for each photo, and is left out: the norm at q = 100 is a lower bound.

{table(("network", *head), [(LITE0, *row)])}"""
    return Part(body, claims)


@item("rice-table2", "Table 2, training by norm")
def table2(session: Session) -> Part:
    """Networks trained with both estimators of the norm, and two MNIST networks of table 1."""
    runs = {name: trained_by_norm(session, name) for name in OBJECTIVES}
    path = {name: norms(each, "qnorm_path") for name, each in runs.items()}
    claims = [
        lower(
            f"training at q = 1 helps at q = {q:,}",
            path["MC q = 1"][q],
            path["standard"][q],
            "loss, fall",
        )
        for q in (1, 1000)
    ]
    for q in TRAINED_Q:
        for at in dict.fromkeys((q, 100)):
            but = " (in the paper it does not)" if q == 10 else ""
            text = (
                f"trained at q = {q:,}, path sampling gives a lower loss than plain "
                f"copies{but}, evaluated at q = {at:,}"
            )
            claims.append(
                lower(
                    text,
                    path[f"path q = {q:,}"][at],
                    path[f"MC q = {q:,}"][at],
                    "loss: MC training minus path training",
                )
            )
    paper = [
        ("MC q = 10", ".026", ".058", ".098", ".105", ".026", ".058", ".412", "1.336", "3.722"),
        ("MC q = 100", ".025", ".055", ".093", ".099", ".025", ".055", ".388", "1.261", "3.492"),
        ("MC q = 1,000", ".025", ".055", ".093", ".100", ".025", ".055", ".390", "1.268", "3.488"),
        ("PS+HMC q = 10", ".031", ".075", ".126", ".135", ".031", ".075", ".467", "1.307", "5.012"),
        ("PS+HMC q = 100", ".028", ".060", ".099", ".107", ".028", ".058", ".304", ".816", "2.613"),
        (
            "PS+HMC q = 1,000",
            ".024",
            ".047",
            ".077",
            ".083",
            ".024",
            ".045",
            ".239",
            ".684",
            "1.646",
        ),
    ]
    seen = len(runs["standard"][0].table.ids)
    found = [row for name, each in runs.items() for row in evaluated(each, name)]
    body = f"""The paper (MNIST, a CNN; its networks *standard* and *MC q = 1* are in table 1):

{table(("training", *HEAD[1:]), paper)}

Here: one hidden layer of 128, {session.to_train("mnist", IMAGES_TRAINED):,} training images,
{EPOCHS} epochs (`robaudit.methods.training`), 50 copies or 25 temperatures and 2 steps as in the
paper; means of {len(session.seeds)} trainings on the first {seen:,} test images.
{TRAININGS}
All 60,000 images: `.venv/bin/python -m tests.research.papers rice-table2 --full
--device cuda`. Of the paper's table 1, *PGD-50* has no row: trained on 10,000 images with 50 steps
of PGD, this network guessed (accuracy .11).

The paper's conclusion is that *most* networks trained by path sampling have a lower loss than
those trained with plain copies at the same q. In its own table they do at q = 100 and 1,000; at q
= 10 they do only if evaluated at q = 1,000. Compare the column q = 1, too: in the paper's table
training at a large q costs nothing there.

{table(("training", *OURS[1:]), found)}

{LACKING}"""
    return Part(body, tuple(claims))


@item("rice-table3", "Table 3, spatial changes")
def table3(session: Session) -> Part:
    """Flips, scales, rotations and shifts, which have no gradient here."""
    runs = {net: [in_space(session, net)] for net in SPATIAL}
    claims = []
    for net, each in runs.items():
        claims += ordered(each, NAMES[net])
        last = norms(each, "qnorm_path")[1000]
        worst = largest(each)
        claims.append(
            at_most(
                f"{NAMES[net]}: q = 1,000 approaches the adversarial loss",
                (worst - last) / worst,
                0.2,
                "share missing",
            )
        )
    paper = [
        (
            "CIFAR-10, standard",
            ".450",
            "2.268",
            "3.687",
            "3.865",
            ".444",
            "2.450",
            "4.636",
            "4.889",
            "5.625",
        ),
        (
            "CIFAR-10, MC q = 1",
            ".191",
            ".800",
            "1.246",
            "1.300",
            ".186",
            ".879",
            "1.615",
            "1.711",
            "2.021",
        ),
    ]
    body = f"""The paper:

{table(HEAD, paper)}

Here: noise `spatial` of size 1, whose parameters are variables of its own
([noise.md](../noise.md)), so the domain is not quite the paper's. Without gradients `qnorm_path`
draws copies where earlier copies had large losses; `adversarial_loss` takes the worst of every
point of 3 annealed chains.

{table(OURS, [row for net, each in runs.items() for row in evaluated(each, NAMES[net])])}

{LACKING}"""
    return Part(body, tuple(claims))


@item("rice-fig1", "Figure 1, convergence")
def fig1(session: Session) -> Part:
    """Values by the number of passes."""
    lines = {}
    claims = []
    rows = []
    for net in (MNIST, CIFAR_MIX):
        run = growing(session, net)
        for q in (1, 100):
            plain, path = (
                {n: values(run, f"{e}-{n}:q={q}") for n in many}
                for e, many in (("mc", COPIES), ("path", TEMPERATURES))
            )
            passes = [QNormPath(q=(1, 100), temperatures=n).passes(10)[1] for n in TEMPERATURES]
            lines[f"{NAMES[net]}, q = {q}"] = {
                "plain copies": (COPIES, list(plain.values())),
                "path sampling": (passes, list(path.values())),
            }
            rows += [
                (NAMES[net], q, "plain copies", f"{n:,}", with_ends(mean(one)))
                for n, one in plain.items()
            ]
            rows += [
                (NAMES[net], q, "path sampling", f"{n:,}", with_ends(mean(one)))
                for n, one in zip(passes, path.values(), strict=True)
            ]
            a = plain[COPIES[-1]]
            b = path[TEMPERATURES[-1]]
            if q == 1:
                claims.append(
                    at_most(
                        f"{NAMES[net]}, q = 1: both converge to the same value",
                        np.abs(a - b) / b,
                        0.1,
                        "mean relative difference",
                    )
                )
            else:
                claims.append(
                    lower(
                        f"{NAMES[net]}, q = 100: path sampling is essential: {COPIES[-1]:,} "
                        "copies stay below it",
                        a,
                        b,
                        "path sampling less plain copies",
                    )
                )
                claims.append(
                    at_most(
                        f"{NAMES[net]}, q = 100: path sampling has converged with "
                        f"{TEMPERATURES[0]} temperatures, to 10 %",
                        np.abs(path[TEMPERATURES[0]] - b) / b,
                        0.1,
                        f"mean relative difference to {TEMPERATURES[-1]}",
                    )
                )
    picture = panels(
        session,
        "rice-fig1",
        "Norms of the loss against the number of passes",
        lines,
        "passes or gradients",
        "mean norm of the loss",
        log="x",
    )
    found = table(("network", "q", "estimator", "passes", "value"), rows)
    return Part(
        f"{picture}\n\n{session.images(GROWING)} images. Path sampling: the most gradients of an "
        f"image, those of the searches included; many images take no chains.\n\n{found}",
        tuple(claims),
    )
