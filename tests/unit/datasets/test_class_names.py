"""What a folder or a label calls a class leads to its index."""

from __future__ import annotations

import pytest

from robaudit.datasets.class_names import ClassIndex

NAMES = (
    "golden retriever",
    "crane (n02)",
    "crane (n03)",
    "Tench, Tinca tinca",
    "great white shark, white shark",
    "hen",
    "sorrel",
    "zebra",
)
IDS = ("n01", "n02", "n03", "n04", "n05", "n06", "n07", "n08")


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("golden retriever", 0),
        ("Golden_Retriever", 0),
        ("n03", 2),
        ("crane (n02)", 1),
        ("crane", None),
        ("tench", 3),
        ("TINCA TINCA", 3),
        ("white_shark", 4),
        ("shark", None),
        ("", None),
    ],
)
def test_find(text: str, index: int | None) -> None:
    assert ClassIndex(NAMES, IDS).find(text) == index


def test_a_synonym_of_two_classes_finds_none() -> None:
    both = ClassIndex(("kite, bird", "kite, toy"))
    assert both.find("kite") is None
    assert both.find("toy") == 1


def test_remedies() -> None:
    assert (
        ClassIndex(NAMES, IDS).remedy("zebro")
        == "did you mean 'zebra'?; or write class_names in the order of the logits"
    )
    said = ClassIndex(NAMES).remedy("xxxxxx")
    assert said.startswith("known: Tench, Tinca tinca, ")
    assert " and 2 more; rename it, or write class_names in the order of the logits (null: " in said
