"""The pretended card refuses what a real one refuses, allows what it allows, and counts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from robaudit.numerics import rowwise
from tests.system.device import Card, pretended


@pytest.fixture
def card() -> Iterator[Card]:
    with pretended() as card:
        yield card


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, device="cuda")


def on_cpu(*shape: int) -> Tensor:
    return torch.ones(shape)


def whole(*numbers: int) -> Tensor:
    return torch.tensor(numbers)


# What a programmer forgets, and what torch says to it on a real card.
MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a constant on the CPU": (
        lambda: ones(3) + on_cpu(3),
        RuntimeError,
        "at least two devices, cuda:0 and cpu",
    ),
    "the result on the CPU": (
        lambda: on_cpu(3).add_(ones(3)),
        RuntimeError,
        "at least two devices",
    ),
    "a tensor of the CPU indexed from the device": (
        lambda: on_cpu(3)[whole(0).cuda()],
        RuntimeError,
        "indices should be either on cpu",
    ),
    "numpy": (
        lambda: ones(3).numpy(),
        TypeError,
        "can't convert cuda:0 device type tensor to numpy",
    ),
    "a generator of the CPU": (
        lambda: torch.randn(3, generator=torch.Generator(), device="cuda"),
        RuntimeError,
        "'cuda' device type for gen",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_refused(name: str, card: Card) -> None:
    work, error, says = MISTAKES[name]
    with pytest.raises(error, match=says):
        work()


def test_an_operator_without_a_deterministic_form_is_refused_on_request(card: Card) -> None:
    start = ones(2)
    at = whole(0, 0).cuda()
    start.scatter_reduce(0, at, ones(2), "amin")
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            start.scatter_reduce(0, at, ones(2), "amin")
    finally:
        torch.use_deterministic_algorithms(False)


# What torch allows across devices: how often the host waits, and the result.
ALLOWED: dict[str, tuple[Callable[[], Tensor], int, list[float]]] = {
    "a number": (lambda: ones(2) + 1, 0, [2, 2]),
    "a 0-dim tensor of the CPU": (lambda: ones(2) * torch.tensor(3.0), 0, [3, 3]),
    "an index on the CPU": (lambda: torch.arange(3.0, device="cuda")[whole(2, 0)], 1, [2, 0]),
    "a mask": (lambda: torch.arange(3.0, device="cuda")[ones(3) > 0], 1, [0, 1, 2]),
    "numbers from the host": (lambda: torch.tensor([1.0, 2.0], device="cuda"), 1, [1, 2]),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_exceptions_are_kept_and_synchronisations_counted(name: str, card: Card) -> None:
    work, syncs, expected = ALLOWED[name]
    found = work()
    assert found.device == torch.device("cuda:0")
    assert found.is_cuda
    assert card.syncs == syncs
    assert found.tolist() == expected
    assert card.syncs == syncs + 1, "reading the numbers"


def test_a_hidden_item_is_counted_at_its_line(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    source = compile(
        "def total(x):\n    for one in x:\n        one.item()\n    return x",
        rowwise.__file__,
        "exec",
    )
    planted: dict[str, Callable[[Tensor], Tensor]] = {}
    exec(source, planted)  # noqa: S102  a line of the package that waits
    monkeypatch.setattr(rowwise, "total", planted["total"])
    rowwise.total(ones(5))
    assert card.syncs_by_line == {"numerics/rowwise.py:3": 5}
    assert "5  numerics/rowwise.py:3" in card.text()


def test_launches_are_operators_that_are_no_views(card: Card) -> None:
    x = torch.empty(4, 4, device="cuda")
    x.view(16)[1:].unflatten(0, (3, 5)).T.detach()
    assert card.launches == 0
    rowwise.lengths(x.fill_(1.0))  # to float64, squares, their sum and its root
    assert card.launches == 5
    assert {line.partition(":")[0] for line in card.launches_by_line} == {
        "outside",
        "numerics/rowwise.py",
    }
    assert card.launches_by_line["outside"] == 1


def test_backward_runs_here_and_equals_the_cpu(card: Card) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    x = torch.randn(5, 1, 4, 4)
    there = copy.deepcopy(network).to("cuda")
    theirs = x.cuda().requires_grad_()
    ours = x.clone().requires_grad_()
    loss = network(ours).logsumexp(1).sum()
    same = there(theirs).logsumexp(1).sum()
    (expected,) = torch.autograd.grad(loss, ours)
    (found,) = torch.autograd.grad(same, theirs)
    assert found.is_cuda
    assert torch.equal(found.cpu(), expected)
    assert all(parameter.is_cuda for parameter in there.parameters())
