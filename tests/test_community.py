"""The files for contributors, and what they promise."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "docs" / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == project["version"]
    assert citation["license"] == project["license"]


def test_bug_reports_ask_for_the_version_and_the_spec() -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "bug.yml").read_text(encoding="utf-8"))
    labels = {part["id"]: part["attributes"]["label"] for part in form["body"]}
    assert labels["version"] == "robaudit --version"
    assert {"what", "command", "spec"} <= set(labels)


def test_the_workflow_runs_what_a_developer_runs() -> None:
    text = (GITHUB / "workflows" / "check.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"make (\w+)", text))
    assert targets == {"check", "slow"}
    for target in targets:
        assert re.search(rf"^{target}\b.*:", makefile, re.MULTILINE), target
    pythons = jobs["check"]["strategy"]["matrix"]["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len(pythons) == 3
    for python in pythons:
        assert f"Programming Language :: Python :: {python}" in project["classifiers"]


def test_links_of_the_pages_for_contributors_lead_somewhere() -> None:
    for page in GITHUB.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)
