"""An ImageNet network on photos: four kinds of noise, and noise before and after the resize."""

from __future__ import annotations

from tests.research.gallery.gallery import (
    PHOTO_NETWORK,
    Content,
    Gallery,
    accuracy_under,
    clean_accuracy,
    group,
    photos,
    table,
    with_ends,
)

_SIGMAS = (0.05, 0.1, 0.2)
_PHOTONS = (1000, 100, 30)
_SEVERITIES = (1, 3, 5)
_KINDS = {
    "gaussian": _SIGMAS,
    "sensor": _PHOTONS,
    "jpeg": _SEVERITIES,
    "fog": _SEVERITIES,
}


def kinds(gallery: Gallery) -> Content:
    """Gaussian noise, a sensor's, JPEG and fog."""
    content = Content(
        about="EfficientNet-Lite0, trained on ImageNet, on 200 photos of as many classes: Gaussian "
        "noise, the noise of a sensor (photons at white, read noise of 3 electrons), JPEG and fog "
        "of ImageNet-C's severities. 8 copies each; JPEG is the same every time, and has one.",
    )
    run = gallery.run(
        content,
        "photos",
        PHOTO_NETWORK,
        photos(),
        noise=[
            {"kind": "gaussian", "sigma": list(_SIGMAS)},
            {"kind": "sensor", "photons": list(_PHOTONS), "read_noise": 3},
            {"kind": "corruption", "name": ["jpeg", "fog"], "severity": list(_SEVERITIES)},
        ],
        estimators=[{"mc": {"draws": 8}}],
    )
    gallery.plot(
        content,
        "photos-levels",
        run,
        "levels",
        "A row for each kind of noise, a column for each level",
    )
    rows = []
    for kind, levels in _KINDS.items():
        for level in levels:
            accuracy = accuracy_under(run, kind, level)
            rows.append(
                (
                    f"{kind} {level:g}",
                    with_ends(accuracy.population),
                    with_ends(group(run, "mc", kind, level).mean.population),
                    "-" if accuracy.repaired is None else with_ends(accuracy.repaired),
                )
            )
    head = ("noise", "accuracy", "p_robust", "wrong is repaired")
    content.tables.append(
        f"Accuracy without noise: {with_ends(clean_accuracy(run))}.\n\n{table(head, rows)}"
    )
    return content


def file_or_input(gallery: Gallery) -> Content:
    """The same noise in the file of the photo, and at the input of the network."""
    content = Content(
        about="The same Gaussian noise twice: added to the photo as it lies in the file, before it "
        "is resized to 256 pixels and cropped to 224 (`at: file`), and added to what the "
        "network gets (`at: input`, the default). EfficientNet-Lite0, 100 photos of some 500 x 375 "
        "pixels, 4 copies each.",
    )
    run = gallery.run(
        content,
        "file",
        PHOTO_NETWORK,
        photos(sample={"size": 100, "seed": 0}),
        noise=[
            {"kind": "gaussian", "name": "input", "sigma": list(_SIGMAS)},
            {"kind": "gaussian", "name": "photo", "sigma": list(_SIGMAS), "at": "file"},
        ],
        estimators=[{"mc": {"draws": 4}}],
    )
    gallery.plot(
        content, "file-levels", run, "levels", "Accuracy and robustness against sigma, for both"
    )
    return content
