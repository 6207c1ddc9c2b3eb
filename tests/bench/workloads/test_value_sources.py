"""Sources of values: no field is passed over, each is documented, and the schema agrees with what is accepted."""

from dataclasses import fields
from typing import Any

import pytest

from drumbeat.bench.model import KeyValue, NewKey, RandomText
from drumbeat.bench.templates import json_schema, parse
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.value_sources import SOURCES, documented, value_of
from drumbeat.core.errors import InvalidInput


def operation(**fields: Any) -> dict[str, Any]:
    return {"workload": {"operations": [{"kind": "A", "weight": 100, **fields}]}}


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as refused:
        parse(document)
    return str(refused.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"key": {"lo": 1, "high": 9}}, "values[0].key: there is no field 'lo'; did you mean low?"),
        ({"key": {"low": 1, "hi": 9}}, "values[0].key: there is no field 'hi'; did you mean high?"),
        ({"number": {"max": 9}}, "values[0].number: there is no field 'max'; did you mean high?"),
        ({"new_key": {"first": 1, "start": 2}}, "values[0].new_key: there is no field 'start'; did you mean first?"),
        ({"pool": {"value": [1]}}, "values[0].pool: there is no field 'value'; did you mean values?"),
        ({"text": {"xyz": 1}}, "values[0].text: there is no field 'xyz'; expected one of length, type"),
        ({"uuid": {"version": 4}}, "values[0].uuid: there is no field 'version'; expected one of type"),
        ({"now": {"tipe": "text"}}, "values[0].now: there is no field 'tipe'; did you mean type?"),
        ({"same_as": {"index": 0, "add": 1}}, "values[0].same_as: there is no field 'add'"),
        ({"key": {"inserted": {"first": 1, "spam": 2}}}, "key.inserted: there is no field 'spam'; did you mean span?"),
        ({"keys": {"high": 9}}, "values[0]: expected one of key, new_key, pool"),
        ({"keys": {"high": 9}}, "got 'keys'; did you mean key?"),
        ({"text": 0}, "values[0].text: expected an object with its settings, got 0"),
        ({"pool": []}, "values[0].pool: expected an object with its settings, got []"),
    ],
)
def test_a_field_that_there_is_none_of_is_refused_with_the_one_that_was_meant(value: dict[str, Any], said: str) -> None:
    assert said in refusal(operation(sql="SELECT $1", values=[value]))
    assert said in refusal(operation(statements=[{"sql": "SELECT $1", "values": [value]}]))


@pytest.mark.parametrize(
    "extra",
    [
        {"sql": "SELECT 1", "wieght": 5},
        {"statements": [{"sql": "SELECT 1", "valuse": []}]},
        {"statements": [{"sql": "SELECT 1"}], "sql": "SELECT 2"},
        {"statements": [{"sql": "SELECT $1"}], "values": [{"key": {}}]},
    ],
    ids=["of an operation", "of a statement", "sql beside statements", "values beside statements"],
)
def test_nothing_else_in_an_operation_is_passed_over(extra: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        parse(operation(**extra))
    with pytest.raises(InvalidInput):
        load_of(operation(**extra)["workload"])


def test_settings_may_be_left_out_where_all_have_defaults() -> None:
    assert value_of("v", {"text": None}) == RandomText()
    assert value_of("v", {"key": {"high": 9, "inserted": {"first": 10}}}) == KeyValue(high=9, inserted=NewKey(first=10))


def test_every_field_of_every_source_is_documented() -> None:
    told = {(name, field) for name, field, _, meaning in documented() if field and meaning}

    assert told == {(name, each.name) for name, source in SOURCES.items() for each in fields(source.of)}


def test_the_schema_knows_every_source_and_field_and_no_other() -> None:
    statement = json_schema()["$defs"]["StatementBlock"]["properties"]["values"]
    sources = {each["title"]: each for each in statement["items"]["oneOf"]}

    assert set(sources) == set(SOURCES)
    for name, each in sources.items():
        settings = each["properties"][name]
        settings = settings.get("anyOf", [settings])[0]
        assert (each["additionalProperties"], settings["additionalProperties"]) == (False, False)
        assert {field: bool(known["description"]) for field, known in settings["properties"].items()} == {
            field.name: True for field in fields(SOURCES[name].of)
        }
    assert sources["key"]["properties"]["key"]["anyOf"][0]["properties"]["distribution"]["enum"] == [
        "hotspot", "latest", "sequential", "uniform", "zipfian",
    ]  # fmt: skip
