"""How many workers engines can run, as their settings say."""

from collections.abc import Mapping
from typing import Any

import pytest

from drumbeat.composition.worker_slots import engine_capacity
from drumbeat.core.errors import InvalidSettings
from test_engines import plane_on

SMALL: Mapping[str, Any] = {"kind": "local", "slots": 4}
HOSTS = [{"name": "node1", "slots": 2}, {"name": "node2", "slots": 3, "labels": {"gpu": "a100"}}]
CLUSTER: Mapping[str, Any] = {"kind": "ssh", "hosts": HOSTS}
GPUS: Mapping[str, Any] = {"kind": "ssh", "hosts": HOSTS, "labels": {"gpu": "a100"}}


@pytest.mark.parametrize(
    ("names", "slots", "elsewhere"),
    [
        ("local", None, False),
        ("small", 4, False),
        ("cluster", 5, True),
        ("gpus", 3, True),
        ("cluster,small", 9, True),
        ("cluster,local", None, True),
        ("broken", None, False),
    ],
)
def test_the_slots_of_engines_are_added_up_if_all_are_known(names: str, slots: int | None, elsewhere: bool) -> None:
    broken = {"kind": "local", "slots": 0}
    plane = plane_on("postgresql://h/d", small=SMALL, cluster=CLUSTER, gpus=GPUS, broken=broken)

    found = engine_capacity(plane.engines, names)

    assert (found.engines, found.slots, found.elsewhere) == (names, slots, elsewhere)


def test_an_unknown_engine_has_no_slots() -> None:
    with pytest.raises(InvalidSettings, match="nope"):
        engine_capacity(plane_on("postgresql://h/d").engines, "nope")
