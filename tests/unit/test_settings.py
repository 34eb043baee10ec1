"""Settings: one declaration for the command line, Python and the spec; messages in the words of
each."""

from __future__ import annotations

import inspect
import pickle
from typing import Any, get_type_hints

import pytest
from typer.models import OptionInfo

from robaudit.api.audit import audit
from robaudit.cli.estimate import estimate
from robaudit.errors import RobauditError, SampleError, SpecError
from robaudit.settings import (
    AUDIT,
    ESTIMATE,
    EXTEND,
    LIMIT,
    ON_ERROR,
    OUT,
    Setting,
    in_python,
    joined,
)
from robaudit.spec.model import AuditSpec, BaseDatasetSpec, ModelSpec, RunSpec

IN_MEMORY = {"what", "dataset", "model", "ids", "layout", "image_key", "label_key"}
"""Arguments of audit() that hold or describe objects."""
SHOWING = {"progress", "listener"}
"""Arguments of audit() about what is shown meanwhile; the command line has --quiet."""
ONLY_PYTHON = {"mean", "std", "output", "class_names", "precision", "batch_size", "name"}
"""Keys of the spec that the command line sets with --set."""
ONLY_COMMAND_LINE = {
    *("level", "set", "report", "junit", "quiet"),
    *("population", "point", "inconclusive", "strict"),
}
"""Settings of estimate that are about files and gates of the command, or that a dict replaces."""


def options_of(command: Any) -> dict[tuple[Any, ...], OptionInfo]:
    """The options of a command by their flags, as typer reads them."""
    options: dict[tuple[Any, ...], OptionInfo] = {}
    for hint in get_type_hints(command, include_extras=True).values():
        for declared in getattr(hint, "__metadata__", ()):
            if isinstance(declared, OptionInfo):
                # typer takes the first flag for the default until it sees the function.
                options[declared.default, *(declared.param_decls or ())] = declared
    return options


def flags_of(setting: Setting) -> tuple[str, ...]:
    return (setting.flag, setting.short) if setting.short else (setting.flag,)


def test_the_command_line_has_the_settings_of_an_audit() -> None:
    wanted = {flags_of(setting) for setting in AUDIT if setting.argument not in ONLY_PYTHON}
    assert set(options_of(estimate)) == wanted


def test_the_options_say_what_the_settings_say() -> None:
    options = options_of(estimate)
    for setting in AUDIT:
        if setting.argument in ONLY_PYTHON:
            continue
        option = options[flags_of(setting)]
        assert option.help == setting.help, setting.argument
        assert option.rich_help_panel == setting.panel, setting.argument
        assert option.min == setting.least, setting.argument


def test_python_has_the_settings_of_an_audit() -> None:
    arguments = set(inspect.signature(audit).parameters) - IN_MEMORY - SHOWING
    wanted = {setting.argument for setting in AUDIT} - ONLY_COMMAND_LINE
    assert arguments == wanted


def test_the_documentation_of_audit_names_every_argument() -> None:
    documented = inspect.getdoc(audit) or ""
    for argument in inspect.signature(audit).parameters:
        assert argument in documented


def test_places_are_keys_of_the_spec() -> None:
    sections: dict[str, Any] = {"model": ModelSpec, "dataset": BaseDatasetSpec, "run": RunSpec}
    for setting in AUDIT:
        if not setting.place:
            continue
        section, *key = map(str, setting.place)
        assert section in AuditSpec.model_fields, setting.argument
        if section in sections:
            assert key[0] in sections[section].model_fields, setting.argument


def test_a_switch_has_a_type_of_two_values() -> None:
    hints = get_type_hints(estimate)
    for name, hint in hints.items():
        for setting in AUDIT:
            if setting.argument == name:
                assert setting.switch == (hint is bool), name


def test_words_of_each_door() -> None:
    text = "add " + EXTEND + ", or choose another " + OUT
    assert text == "add --extend, or choose another --out"
    assert in_python(text) == "add extend=True, or choose another out"
    assert in_python(ESTIMATE + ON_ERROR.set_to("skip")) == "on_error='skip'"
    assert in_python(joined("; ", ["first", "raise " + LIMIT])) == "first; raise limit"
    assert in_python("--out as data") == "--out as data"
    assert Setting("with_").flag == "--with"


def test_an_error_keeps_the_words_of_both() -> None:
    error = SpecError(EXTEND, "several runs\nfit", "name one with " + OUT)
    for known in (error, pickle.loads(pickle.dumps(error))):
        assert str(known) == "--extend: several runs fit; name one with --out"
        known.say_in_python()
        assert str(known) == "extend: several runs fit; name one with out"


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        ("repair it", "a: is damaged; repair it; or continue without it: on_error='skip'"),
        ("", "a: is damaged; continue without it: on_error='skip'"),
    ],
)
def test_a_sample_can_be_skipped(remedy: str, words: str) -> None:
    error: RobauditError = SampleError("a", "is damaged", remedy).or_skip()
    assert "robaudit estimate --on-error skip" in str(error)
    error.say_in_python()
    assert str(error) == words
