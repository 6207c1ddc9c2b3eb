"""Which fields a template's editor has, as values, and what becomes of a document that goes through them."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from nicegui import Client
from nicegui.page import page

from bench.templates.seeds import EXAMPLES, in_the_seeds
from drumbeat.bench.model import KeyValue, LoadMode, Now, Operation, PoolValue, SameAs, ScalingMode, Statement
from drumbeat.bench.templates import parse
from drumbeat.core.errors import InvalidInput
from drumbeat.web.app_state import AppState
from drumbeat.web.databases import database_of, database_type_of
from drumbeat.web.pages.forms import split_field, split_problems
from drumbeat.web.pages.templates_fields import (
    LOAD,
    MAX_PER_WORKER,
    SCALING,
    Modes,
    TemplateField,
    WorkloadType,
    enum_of,
    every_field,
    field_labels,
    filled,
    get,
    missing,
    modes_of,
    put,
    way_of,
    workload,
)
from drumbeat.web.pages.templates_form import TemplateForm
from drumbeat.web.pages.templates_operations import operation_of
from drumbeat.web.pages.templates_values import value_sources

AUTO = Modes(load=LoadMode.CONCURRENCY, scaling=ScalingMode.AUTO, way=WorkloadType.PRESET)


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ({}, WorkloadType.PRESET),
        ({"preset": "mixed"}, WorkloadType.PRESET),
        ({"standard": "read-only"}, WorkloadType.STANDARD),
        ({"custom_insert_pct": 0}, WorkloadType.CUSTOM),
        ({"custom_update_query": "UPDATE t"}, WorkloadType.CUSTOM),
        ({"operations": [{"kind": "X", "weight": 100}]}, WorkloadType.OPERATIONS),
    ],
)
def test_a_document_says_its_workload_in_one_way(said: dict[str, Any], way: WorkloadType) -> None:
    assert way_of({"workload": said}) is way


def test_what_the_modes_do_not_have_is_left_out_and_what_no_field_shows_stays() -> None:
    before = {"scaling": {"mode": "BOUNDED", "max_workers": 4}, "sharding": {"enabled": True}, "slo": {"overall": {}}}

    made = filled(before, {each.path: 7 for each in SCALING}, AUTO)

    assert made["scaling"] == {"mode": "AUTO", "engine": 7}
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
    return TemplateForm(cast(AppState, None), tree, (), enabled=True)


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


OPERATIONS = [
    {"kind": "INSERT", "weight": 30, "sql": "INSERT INTO t VALUES ($1)", "values": [{"text": {"length": 9}}], "reads": False},
    {"kind": "both", "weight": 70, "statements": [{"sql": "SELECT 1", "values": []}, {"sql": "SELECT 2", "values": []}]},
]


@pytest.mark.usefixtures("on_a_page")
def test_operations_of_ones_own_stay_and_one_is_taken_away_or_changed() -> None:
    kept = parse({"workload": {"operations": OPERATIONS}}).to_json()
    untouched, changed, fewer = (form_over(kept) for _ in range(3))
    changed._operations._rows[0].kind.value = "UPDATE"
    fewer._operations._remove(fewer._operations._rows[0])

    assert untouched.tree() == kept
    assert changed.tree()["workload"]["operations"] == [{**OPERATIONS[0], "kind": "UPDATE"}, OPERATIONS[1]]
    assert fewer.tree()["workload"]["operations"] == OPERATIONS[1:]


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        (("a", 1, "SELECT 1", "{", ""), "workload.operations[3].values"),
        (("a", 1, "[{", "", ""), "workload.operations[3].statements"),
    ],
)
def test_what_is_not_json_is_named_at_its_field(typed: tuple[str, int, str, str, str], path: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        operation_of(3, *typed)

    assert str(refused.value).startswith(f"{path}: expected a JSON list, got: ")


def test_the_values_of_operations_say_where_they_come_from_and_how_many_there_are() -> None:
    values = (PoolValue(values=(7, 8, 7, 9)), KeyValue(low=1, high=5000), Now(), SameAs(index=0))
    statements = (Statement(sql="SELECT $1, $2, $3, $4", values=values), Statement(sql="SELECT 1"))

    found = [(each.kind, each.placeholder, each.source, each.details) for each in value_sources([operation(statements)])]

    assert found == [
        ("mine", "statement 1, $1", "list of values", "4 values, 3 different, such as 7, 8, 7"),
        ("mine", "statement 1, $2", "existing key", "1 to 5,000, uniform"),
        ("mine", "statement 1, $3", "now", "time of the operation"),
        ("mine", "statement 1, $4", "same as another value", "copies value 0; value 0 is the operation's first"),
    ]


def operation(statements: tuple[Statement, ...]) -> Operation:
    return Operation(kind="mine", weight=100, statements=statements)


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("postgres://h/d", "postgresql"), ("mariadb://h/d", "mysql"), ("SQLITE:///f", "sqlite"), ("duckdb:///f", "duckdb"),
        ("oracle://h", None), ("", None), ("http://[", None),
    ],
)  # fmt: skip
def test_the_type_of_a_database_is_known_by_its_url(url: str, database: str | None) -> None:
    assert database_type_of(url) == database
    assert database_of({"document": {"target": {"url": url}}}) == database
    assert database_of({"target": {"connection": "named"}}, {"named": url}) == database


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

    form.fields["workload"].value = WorkloadType.STANDARD
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
    [
        (LoadMode.CONCURRENCY, "Total connections"),
        (LoadMode.QPS, MAX_PER_WORKER),
        (LoadMode.FIND_MAX_CONCURRENCY, MAX_PER_WORKER),
    ],
)
def test_connections_are_called_what_they_are_in_each_load_mode(load: LoadMode, label: str) -> None:
    modes = Modes(load=load, scaling=ScalingMode.AUTO, way=WorkloadType.PRESET)

    assert field_labels(modes, {})["concurrent_connections"][0] == label
    assert "concurrent_connections" in {each.path for each in every_field() if each.shown(modes)}


@pytest.mark.parametrize(("load", "scaling"), [each for each in MODES if each[0] is not LoadMode.CONCURRENCY])
def test_the_limit_of_connections_has_one_field_and_an_unseen_one_is_told_there(load: LoadMode, scaling: ScalingMode) -> None:
    tree = {"load_mode": load, "scaling": {"mode": scaling}, "concurrent_connections": 50}
    modes = modes_of(tree)

    limits = {"concurrent_connections", "scaling.max_connections"}
    shown = {each.path for each in every_field() if each.shown(modes)} & limits

    assert len(shown) == (scaling is not ScalingMode.FIXED)
    assert field_labels(modes, tree)["scaling.max_connections"][1] == ("No limit" if scaling is ScalingMode.AUTO else "50")


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
    assert split_problems(message) == found


def test_a_message_without_a_field_is_no_fields() -> None:
    assert split_field("there is no such: thing") == ("", "there is no such: thing")


def test_a_field_without_a_rule_is_always_shown() -> None:
    assert TemplateField(path="seed", label="Seed").shown(AUTO)
