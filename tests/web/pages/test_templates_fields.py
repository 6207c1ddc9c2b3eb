"""Which fields a template's editor has, as values, and what becomes of a document that goes through them."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from nicegui import Client
from nicegui.page import page

from bench.template.seeds import EXAMPLES, in_the_seeds
from drumbeat.bench.model import LoadMode, ScalingMode
from drumbeat.bench.template import parse
from drumbeat.web.house import House
from drumbeat.web.pages.forms import named, problems
from drumbeat.web.pages.templates_fields import (
    CEILING,
    LOAD,
    SCALING,
    Asked,
    Modes,
    Way,
    enum_of,
    every_field,
    filled,
    get,
    missing,
    modes_of,
    put,
    way_of,
    wording,
    workload,
)
from drumbeat.web.pages.templates_form import TemplateForm

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

    made = filled(before, {each.path: 7 for each in SCALING}, AUTO)

    assert made["scaling"] == {"mode": "AUTO"}
    assert made["sharding"] == {"enabled": True}
    assert made["slo"] == {"overall": {}}
    assert before["scaling"] == {"mode": "BOUNDED", "max_workers": 4}


@pytest.fixture
def on_a_page() -> Iterator[None]:
    """Elements may be made, though no browser looks at them."""
    client = Client(page("/nowhere"))
    with client:
        yield
    client.delete()


def form_over(tree: dict[str, Any]) -> TemplateForm:
    """The fields of a document; the house is asked only once somebody types."""
    return TemplateForm(cast(House, None), tree, (), enabled=True)


WHOLE: dict[str, Any] = {
    "name": "whole ",
    "description": " on two\nlines",
    "tags": ["one, and the same", "two"],
    "target": {"connection": "gone since", "url": "sqlite:///t.db", "table": "t", "parallel_connects": 3},
    "workload": {"preset": "mixed", "custom_insert_query": " INSERT INTO {table} VALUES ($1) ", "think_time_ms": 4},
    "concurrent_connections": 50,
    "target_qps": 500,
    "starting_threads": 3,
    "bounds_patience_intervals": 9,
    "expected_latency_ms": 10,
    "control_interval_seconds": 7,
    "find_max": {"start_connections": 2, "bisect": False},
    "timing": {"duration_seconds": 20},
    "scaling": {"min_workers": 2, "max_workers": 4, "min_connections": 5, "max_connections": 60},
    "guardrails": {"enabled": False, "mode": "hard", "max_cpu_percent": 60, "fail_threshold": "any"},
    "slo": {"DELETE": {"p95_ms": 5}, "INSERT": {}},
    "sharding": {"enabled": True},
    "on_worker_lost": "tolerate:2",
    "seed": 7,
}
OTHERS = ({}, {"workload": {"standard": "read-only", "scale": 3}}, *EXAMPLES.values(), *in_the_seeds())
MODES = [(load, scaling) for load in LoadMode for scaling in ScalingMode]


@pytest.mark.usefixtures("on_a_page")
@pytest.mark.parametrize(("load", "scaling"), MODES)
def test_what_nobody_touches_stays_as_it_is_in_every_mode(load: LoadMode, scaling: ScalingMode) -> None:
    kept = parse(in_mode(WHOLE, load, scaling)).to_json()

    made = form_over(kept).tree()

    assert made == kept
    assert parse(made).to_json() == kept


def in_mode(document: dict[str, Any], load: LoadMode, scaling: ScalingMode) -> dict[str, Any]:
    return {**document, "load_mode": load, "scaling": {**document.get("scaling", {}), "mode": scaling}}


@pytest.mark.parametrize(("load", "scaling"), MODES)
def test_the_seeds_documents_lose_nothing_in_any_mode(load: LoadMode, scaling: ScalingMode) -> None:
    for document in OTHERS:
        kept = parse(in_mode(document, load, scaling)).to_json()

        assert filled(kept, {}, modes_of(kept)) == kept


@pytest.mark.usefixtures("on_a_page")
@pytest.mark.parametrize("document", OTHERS)
def test_what_nobody_touches_stays_as_it_is_in_documents_that_say_their_own_mode(document: dict[str, Any]) -> None:
    kept = parse(document).to_json()

    assert form_over(kept).tree() == kept


@pytest.mark.usefixtures("on_a_page")
def test_what_is_typed_is_kept_and_only_what_another_mode_does_not_have_goes() -> None:
    form = form_over(parse({**WHOLE, "load_mode": "QPS", "scaling": {**WHOLE["scaling"], "mode": "BOUNDED"}}).to_json())

    for path, value in {"load_mode": "CONCURRENCY", "scaling.mode": "FIXED", "slo.DELETE.p95_ms": None}.items():
        if path in form.fields:
            form.fields[path].value = value
    made = form.tree()

    assert "target_qps" not in made
    assert made["scaling"] == {"mode": "FIXED", "min_workers": 2, "min_connections": 5}
    assert made["guardrails"] == {"enabled": False, "act_patience": 2, "interval_seconds": 5.0}
    assert made["find_max"]["start_connections"] == 2
    assert made["slo"] == {"DELETE": {"p95_ms": 5.0}, "INSERT": {}}


@pytest.mark.usefixtures("on_a_page")
def test_another_way_to_say_the_workload_leaves_nothing_of_the_first() -> None:
    form = form_over(parse(WHOLE).to_json())

    form.fields["workload"].value = Way.STANDARD
    form.fields["workload.standard"].value = "read-only"
    made = parse(form.tree())

    assert made.workload.ways == ("standard",)


@pytest.mark.usefixtures("on_a_page")
def test_a_service_level_that_is_emptied_is_none() -> None:
    form = form_over(parse({"slo": {"overall": {"p95_ms": 5}}}).to_json())

    form.fields["slo.overall.p95_ms"].value = None

    assert form.tree()["slo"] == {}


@pytest.mark.parametrize(
    ("load", "label"),
    [(LoadMode.CONCURRENCY, "Connections in all"), (LoadMode.QPS, CEILING), (LoadMode.FIND_MAX_CONCURRENCY, CEILING)],
)
def test_connections_are_called_what_they_are_in_each_load_mode(load: LoadMode, label: str) -> None:
    modes = Modes(load=load, scaling=ScalingMode.AUTO, way=Way.PRESET)

    assert wording(modes)["concurrent_connections"][0] == label
    assert "concurrent_connections" in {each.path for each in every_field() if each.shown(modes)}


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
