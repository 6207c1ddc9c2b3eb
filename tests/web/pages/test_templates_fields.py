"""Which fields a template's editor has, as values."""

from typing import Any

import pytest

from drumbeat.bench.model import LoadMode, ScalingMode
from drumbeat.web.pages.forms import named, problems
from drumbeat.web.pages.templates_fields import (
    LOAD,
    SCALING,
    Asked,
    Modes,
    Way,
    enum_of,
    filled,
    get,
    missing,
    put,
    way_of,
    workload,
)

AUTO = Modes(load=LoadMode.CONCURRENCY, scaling=ScalingMode.AUTO, way=Way.PRESET)


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ({}, Way.PRESET),
        ({"preset": "mixed"}, Way.PRESET),
        ({"standard": "read-only"}, Way.STANDARD),
        ({"custom_insert_pct": 0}, Way.CUSTOM),
        ({"custom_update_query": "UPDATE t"}, Way.CUSTOM),
        ({"operations": [{"kind": "X", "weight": 100}]}, Way.OPERATIONS),
    ],
)
def test_a_document_says_its_workload_in_one_way(said: dict[str, Any], way: Way) -> None:
    assert way_of({"workload": said}) is way


def test_what_the_modes_do_not_have_is_left_out_and_what_no_field_shows_stays() -> None:
    before = {"scaling": {"mode": "BOUNDED", "max_workers": 4}, "sharding": {"enabled": True}, "slo": {"overall": {}}}

    made = filled(before, dict.fromkeys(SCALING, 7), AUTO)

    assert made["scaling"] == {"mode": "AUTO"}
    assert made["sharding"] == {"enabled": True}
    assert made["slo"] == {}
    assert before["scaling"] == {"mode": "BOUNDED", "max_workers": 4}


def test_fields_are_put_where_their_paths_say() -> None:
    tree: dict[str, Any] = {}

    put(tree, "find_max.start_connections", 3)
    put(tree, "seed", 1)
    put(tree, "seed", None)

    assert tree == {"find_max": {"start_connections": 3}}
    assert (get(tree, "find_max.start_connections"), get(tree, "seed.deeper")) == (3, None)


@pytest.mark.parametrize(
    ("tree", "paths"),
    [
        ({"name": "n", "scaling": {"mode": "AUTO"}}, []),
        ({"scaling": {"mode": "FIXED", "min_workers": 2}}, ["name", "scaling.min_connections"]),
        ({"name": "n", "scaling": {"mode": "FIXED"}}, ["scaling.min_workers", "scaling.min_connections"]),
    ],
)
def test_what_is_missing_is_named_by_its_path(tree: dict[str, Any], paths: list[str]) -> None:
    assert [path for path, _ in missing(tree)] == paths


def test_every_field_of_the_form_is_one_of_the_template() -> None:
    known = [*LOAD, *SCALING, *workload()]

    assert len({each.path for each in known}) == len(known)
    assert "read-heavy" in enum_of("WorkloadBlock", "preset")


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("the template is wrong at name: expected less", [("name", "expected less")]),
        ("the template is wrong in 2 places:\n  a.b: one\n  c: two", [("a.b", "one"), ("c", "two")]),
        ("expected a template in YAML, got: nothing", [("", "expected a template in YAML, got: nothing")]),
    ],
)
def test_a_refusal_is_taken_apart_by_field(message: str, found: list[tuple[str, str]]) -> None:
    assert problems(message) == found


def test_a_message_without_a_field_is_no_fields() -> None:
    assert named("there is no such: thing") == ("", "there is no such: thing")


def test_a_field_without_a_rule_is_always_shown() -> None:
    assert Asked(path="seed", label="Seed").shown(AUTO)
