"""Room for workers on a cluster whose nodes come and go, without processes."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from robaudit.auditing.prepare import open_audit
from robaudit.auditing.ray_cluster import ray_workers
from robaudit.progress import Listener
from tests.specs import digits
from tests.system.ray.teams import Actor, FakeRay, prepared, request


class Group:
    """A placement group, which gets room if the cluster has that many CPUs."""

    def __init__(self, bundles: list[dict[str, float]], cluster: Cluster) -> None:
        self.size = len(bundles)
        self.cluster = cluster
        self.waits = 0
        cluster.groups.append(self)

    def wait(self, _: float) -> bool:
        self.waits += 1
        assert self.waits < 9, "it would wait for ever"
        return self.size <= self.cluster.cpus


class Cluster(FakeRay):
    """A cluster with two CPUs, which still counts those of a third until somebody has asked
    twice."""

    def __init__(self) -> None:
        super().__init__()
        self.cpus = 2
        self.asked = 0
        self.groups = list[Group]()
        self.removed = list[Group]()

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        self.asked += 1
        return {"CPU": 3.0 if self.asked <= 2 else 2.0}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **_: Any) -> Any:
        report = prepared(request(digits()))[1]

        def started() -> Any:
            actor = Actor(lambda *_: iter(()), lambda: report)
            actor.prepare.options = lambda **_: actor.prepare
            return actor

        return lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(remote=started))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    there = Cluster()
    util = ModuleType("ray.util")
    strategies = ModuleType("ray.util.scheduling_strategies")
    vars(util).update(
        placement_group=lambda bundles: Group(bundles, there),
        placement_group_table=lambda group: {
            "bundles_to_node_id": dict.fromkeys(range(group.size), "node")
        },
        remove_placement_group=there.removed.append,
    )
    vars(strategies).update(PlacementGroupSchedulingStrategy=lambda group: group)
    for name, module in {
        "ray": there,
        "ray.util": util,
        "ray.util.scheduling_strategies": strategies,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return there


def test_a_lost_node_that_was_still_counted_is_not_waited_for(cluster: Cluster) -> None:
    given = request(digits())
    with ray_workers(given, open_audit(given, Listener()).data, Listener()) as crew:
        assert crew.number == 2
        assert [group.size for group in cluster.groups] == [3, 2]
        assert cluster.removed == cluster.groups[:1]
    assert cluster.removed == cluster.groups
