"""A fleet's policy, and its JSON."""

from typing import Any

import pytest

from drumbeat.core.errors import InvalidSettings
from drumbeat.fleet.model import FleetPolicy
from fleet.given import seconds


def test_a_policy_survives_its_json() -> None:
    policy = FleetPolicy(workers=3, target=7, ramp=seconds(2.5))

    assert policy.to_json() == {"workers": 3, "target": 7, "ramp_seconds": 2.5}
    assert FleetPolicy.from_json(policy.to_json()) == policy


def test_what_a_policy_does_not_say_is_usual() -> None:
    assert FleetPolicy.from_json({"of another version": True}) == FleetPolicy(workers=1, target=1, ramp=seconds(0))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"workers": -1}, "workers to be 0 or more, got -1"),
        ({"target": -5}, "target to be 0 or more, got -5"),
        ({"workers": "many"}, "expected numbers"),
        ({"target": None}, "expected numbers"),
        ({"ramp_seconds": float("inf")}, "expected numbers"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        FleetPolicy.from_json(fields)
