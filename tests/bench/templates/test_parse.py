"""Reading templates: every spelling the seeds have, and every wrong field named with what was expected."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from bench.templates.seeds import EXAMPLES, SEEDS, blocks_in_the_seeds, in_the_seeds
from drumbeat.bench.model import FailThreshold, GuardrailMode, LoadMode, Queueing, ScalingMode
from drumbeat.bench.templates import parse, with_settings
from drumbeat.bench.templates.parse import json_schema
from drumbeat.bench.templates.problems import FIELDS
from drumbeat.bench.templates.spellings import SPELLINGS
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import MOST_VALUES


def refusal(source: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        parse(source)
    return str(refused.value)


def value_of(value: dict[str, Any]) -> dict[str, Any]:
    """A template whose one statement takes this value."""
    return {"workload": {"operations": [{"kind": "A", "weight": 100, "sql": "SELECT $1", "values": [value]}]}}


# The seeds' examples


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_seeds_examples_are_taken_as_data_as_json_and_as_yaml(name: str) -> None:
    document = parse(EXAMPLES[name])

    assert parse(json.dumps(EXAMPLES[name])) == document
    assert parse(json.dumps(EXAMPLES[name], indent=2)) == document


@pytest.mark.skipif(not SEEDS.exists(), reason="the seeds are not at hand")
def test_every_template_in_the_seeds_is_taken() -> None:
    found = list(in_the_seeds())

    assert {json.dumps(each, sort_keys=True) for each in EXAMPLES.values()} == {json.dumps(e, sort_keys=True) for e in found}
    for example in found:
        parse(example)


@pytest.mark.skipif(not SEEDS.exists(), reason="the seeds are not at hand")
def test_every_block_of_the_seeds_is_taken_as_it_stands_comments_and_all() -> None:
    blocks = list(blocks_in_the_seeds())

    assert any("//" in block for block in blocks)
    for block in blocks:
        parse(block)


def test_an_example_means_what_the_seed_says() -> None:
    document = parse(EXAMPLES["bounded qps"])

    assert (document.load_mode, document.target_qps) == (LoadMode.QPS, 5000)
    assert document.scaling.mode is ScalingMode.BOUNDED
    assert (document.scaling.min_workers, document.scaling.max_workers) == (2, 10)
    assert (document.scaling.min_connections, document.scaling.max_connections) == (25, 500)


def test_the_old_fields_become_the_new_format_of_the_seed() -> None:
    assert parse(EXAMPLES["old"]) == parse(EXAMPLES["new"])
    assert parse(EXAMPLES["old"]).config_hash == parse(EXAMPLES["new"]).config_hash


def test_no_autoscaling_becomes_one_worker_with_all_connections() -> None:
    scaling = parse({"autoscale_enabled": False, "concurrent_connections": 40}).scaling

    assert (scaling.mode, scaling.min_workers, scaling.min_connections) == (ScalingMode.FIXED, 1, 40)


def test_what_is_said_in_the_new_words_stands_against_the_old() -> None:
    document = parse({"autoscale_enabled": True, "scaling": {"mode": "BOUNDED", "max_workers": 3}})

    assert (document.scaling.mode, document.scaling.max_workers) == (ScalingMode.BOUNDED, 3)


# Spellings


@pytest.mark.parametrize(
    ("given", "path", "expected"),
    [
        ({"start_concurrency": 7}, "find_max.start_connections", 7),
        ({"start_connections": 7}, "find_max.start_connections", 7),
        ({"find_max": {"start_concurrency": 7}}, "find_max.start_connections", 7),
        ({"find_max": {"concurrency_increment": 3}}, "find_max.connections_increment", 3),
        ({"concurrency_increment": 3}, "find_max.connections_increment", 3),
        ({"step_duration_seconds": "1m"}, "find_max.step_duration_seconds", 60),
        ({"qps_stability_pct": 8}, "find_max.qps_stability_pct", 8),
        ({"latency_stability_pct": 150}, "find_max.latency_stability_pct", 150),
        ({"max_error_rate_pct": 0.5}, "find_max.max_error_rate_pct", 0.5),
        ({"warmup": "500ms"}, "timing.warmup_seconds", 0.5),
        ({"duration": "1h30m"}, "timing.duration_seconds", 5400),
        ({"duration_seconds": 12}, "timing.duration_seconds", 12),
        ({"timing": {"duration": "2m 5s"}}, "timing.duration_seconds", 125),
        ({"scaling": {"max_workers": -1}}, "scaling.max_workers", None),
        ({"scaling": {"max_workers": None}}, "scaling.max_workers", None),
        ({"scaling": {"mode": "bounded"}}, "scaling.mode", ScalingMode.BOUNDED),
        ({"scaling": None}, "scaling.mode", ScalingMode.AUTO),
        ({"load_mode": "FIND_MAX"}, "load_mode", LoadMode.FIND_MAX_CONCURRENCY),
        ({"load_mode": "QPS", "concurrent_connections": -1}, "concurrent_connections", None),
        ({"find_max": {"queueing": "Locks"}}, "find_max.queueing", Queueing.LOCKS),
        ({"find_max": {"queueing": False}}, "find_max.queueing", Queueing.OFF),
        ({"guardrails": {"mode": "HARD"}}, "guardrails.mode", GuardrailMode.HARD),
        ({"guardrails": {"fail_threshold": "Any"}}, "guardrails.fail_threshold", FailThreshold.ANY),
        ({"custom_insert_query": "X", "custom_insert_pct": 100}, "workload.custom_insert_pct", 100),
        ({"workload": {"mix_preset": "read-only"}}, "workload.preset", "read-only"),
        ({"target": {"table_name": "t"}}, "target.table", "t"),
        ({}, "timing.warmup_seconds", 30),
        ({}, "timing.duration_seconds", 300),
    ],
)
def test_a_field_is_found_by_each_of_its_spellings(given: dict[str, Any], path: str, expected: object) -> None:
    found: Any = parse(given)
    for name in path.split("."):
        found = getattr(found, name)

    assert found == expected


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        ({"slo": {"p95_ms": 9}}, "overall", 9),
        ({"slo": {"overall": {"p95_ms": 9}}}, "overall", 9),
        ({"slo": {"insert": {"p95_ms": 9}}}, "INSERT", 9),
        ({"slo": {"my own": {"p95_ms": 9}}}, "my own", 9),
        ({"slo": {"INSERT": {"p95_ms": -1}}}, "INSERT", None),
    ],
)
def test_objectives_are_by_kind_and_may_be_off(given: dict[str, Any], kind: str, expected: float | None) -> None:
    assert parse(given).slo[kind].p95_ms == expected


def test_two_spellings_of_one_field_must_agree() -> None:
    assert parse({"duration": 9, "timing": {"duration_seconds": 9}}).timing.duration_seconds == 9
    assert "remove one of them" in refusal({"duration": 8, "timing": {"duration_seconds": 9}})
    assert "INSERT is given twice" in refusal({"slo": {"insert": {"p95_ms": 1}, "INSERT": {"p95_ms": 2}}})


def test_yaml_is_taken() -> None:
    document = parse("name: nightly\ntags: [ci]\nload_mode: QPS\nscaling: {mode: BOUNDED, max_workers: 4}\nduration: 5m\n")

    assert (document.name, document.tags, document.scaling.max_workers) == ("nightly", ["ci"], 4)


# What is refused


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scaling": {"max_wrokers": 3}}, "scaling.max_wrokers: there is no such field; did you mean scaling.max_workers?"),
        ({"max_workers": 3}, "max_workers: there is no such field; did you mean scaling.max_workers?"),
        ({"slo": {"INSERT": {"p95": 3}}}, "slo.INSERT.p95: there is no such field; did you mean slo.INSERT.p95_ms?"),
        ({"min_concurrency": 3}, "min_concurrency: was renamed; use scaling.min_connections"),
        ({"scaling": {"min_concurrency": 3}}, "scaling.min_concurrency: was renamed; use scaling.min_connections"),
        ({"scaling": {"max_workers": "ten"}}, "scaling.max_workers: expected a whole number, got 'ten'"),
        ({"scaling": {"max_workers": True}}, "scaling.max_workers: expected a whole number, got True"),
        ({"scaling": {"max_workers": 0}}, "scaling.max_workers: expected 1 or more, got 0"),
        ({"scaling": {"max_workers": -2}}, "scaling.max_workers: expected 1 or more, got -2"),
        ({"scaling": {"mode": "SOME"}}, "scaling.mode: expected one of 'AUTO', 'BOUNDED' or 'FIXED', got 'SOME'"),
        ({"scaling": {"min_workers": 3, "max_workers": 2}}, "scaling: min_workers > max_workers (3 > 2)"),
        ({"scaling": {"min_connections": 3, "max_connections": 2}}, "scaling: min_connections > max_connections (3 > 2)"),
        ({"scaling": 5}, "scaling: expected an object, got 5"),
        ({"duration": "soon"}, "timing.duration_seconds: expected seconds as a number, or a duration such as 30s"),
        ({"duration": 0}, "timing.duration_seconds: expected more than 0, got 0"),
        ({"duration": float("inf")}, "timing.duration_seconds: expected a finite number"),
        ({"guardrails": {"max_cpu_percent": 101}}, "guardrails.max_cpu_percent: expected 100 or less, got 101"),
        ({"on_worker_lost": "tolerate:" + "9" * 5_000}, "on_worker_lost: expected fail, replace or tolerate:N"),
        ({"on_worker_lost": "tolerate"}, "on_worker_lost: expected fail, replace or tolerate:N"),
        ({"autoscale_enabled": "yes"}, "autoscale_enabled: expected true or false, got 'yes'"),
        ({"concurrent_connections": None}, "concurrent_connections: expected the total number of connections, got no limit"),
        ({"workload": {"standard": "tpcz"}}, "workload.standard: expected one of tpcb"),
        ({"workload": {"standard": "tpcb", "preset": "mixed"}}, "got standard and preset or custom_*"),
        ({"workload": {"custom_insert_pct": 40}}, "workload: expected custom_*_pct fields that total 100, got 40"),
        ({"workload": {"custom_insert_pct": 100}}, "workload: custom_insert_pct is 100, but custom_insert_query is missing"),
        ({"workload": {"operations": [{"kind": "A", "sql": "S"}]}}, "operations.0.weight: expected a value (required)"),
        ({"workload": {"operations": [{"kind": "A", "weight": 9, "sql": "S"}]}}, "expected weights that total 100, got 9"),
        (
            {"workload": {"operations": [{"kind": "A", "weight": 100, "sql": "S", "values": [{"keyy": {}}]}]}},
            "workload.operations[0] (A).values[0]: expected one of key",
        ),
        ({"duration": 1e14}, "timing.duration_seconds: expected 31,536,000 or less, got 100000000000000.0"),
        ({"duration": 1e300}, "timing.duration_seconds: expected 31,536,000 or less"),
        ({"duration": "400d"}, "timing.duration_seconds: expected 31,536,000 or less"),
        ({"ramp_seconds": 1e300}, "ramp_seconds: expected 31,536,000 or less"),
        ({"target": {"query_timeout_seconds": 1e300}}, "target.query_timeout_seconds: expected 31,536,000 or less"),
        ({"target": {"query_timeout_seconds": 1e6}}, "target.query_timeout_seconds: expected 86,400 or less"),
        ({"target": {"parallel_connects": 10**12}}, "target.parallel_connects: expected 20,000 or less"),
        ({"workload": {"think_time_ms": 1e300}}, "workload.think_time_ms: expected 86,400,000 or less"),
        ({"workload": {"scale": 1e300}}, "workload.scale: expected 1,000,000 or less"),
        ({"prices": {"worker_hour": 1e308}}, "prices.worker_hour: expected 1,000,000,000 or less"),
        ({"prices": {"target_hour": 1e308}}, "prices.target_hour: expected 1,000,000,000 or less"),
        ({"target_qps": 1e300}, "target_qps: expected 1,000,000,000 or less"),
        ({"scaling": {"min_connections": 10**12}}, "scaling.min_connections: expected 20,000 or less, got 1000000000000"),
        ({"scaling": {"max_connections": 10**12}}, "scaling.max_connections: expected 20,000 or less"),
        ({"scaling": {"min_workers": 10**12}}, "scaling.min_workers: expected 10,000 or less"),
        ({"concurrent_connections": 10**12}, "concurrent_connections: expected 1,280,000 or less"),
        ({"starting_threads": 10**12}, "starting_threads: expected 1,280,000 or less"),
        ({"find_max": {"start_connections": 10**12}}, "find_max.start_connections: expected 1,280,000 or less"),
        ({"find_max": {"connections_increment": 10**12}}, "find_max.connections_increment: expected 1,280,000 or less"),
        ({"guardrails": {"patience_intervals": 10**12}}, "guardrails.patience_intervals: expected 1,000,000,000 or less"),
        ({"seed": 2**70}, "seed: expected 9,223,372,036,854,775,807 or less"),
        ({"name": "a\nb"}, "name: expected one line of printable text, got 'a\\nb'"),
        ({"name": "\x1b[31mred"}, "name: expected one line of printable text, got '\\x1b[31mred'"),
        (
            {"workload": {"operations": [{"kind": "", "weight": 100, "sql": "S"}]}},
            "workload.operations.0.kind: expected some text",
        ),
        (value_of({"text": {"length": 10**12}}), "values[0].text: expected length to be at most 65,536, got 1000000000000"),
        (value_of({"number": {"low": -(10**30)}}), "values[0].number: expected low to be at least -2147483648"),
        (value_of({"key": {"low": -(10**30)}}), "values[0].key: expected low to be at least -9223372036854775808"),
        (value_of({"number": {"scale": 400, "type": "float"}}), "values[0].number: expected scale from 0 to 18, got 400"),
        ({"find_max": {"settle_seconds": 30}}, "find_max.settle_seconds: expected less than step_duration_seconds (30)"),
        ({"target": {"password": "s3cret"}}, "target.password: passwords are not stored in templates"),
    ],
)
def test_what_is_wrong_is_named_with_what_was_expected(given: dict[str, Any], said: str) -> None:
    assert said in refusal(given)


def test_every_wrong_field_is_listed_at_once() -> None:
    said = refusal({"min_concurrency": 1, "scaling": {"mode": "X"}, "seed": "a", "tarrget": {}}).splitlines()

    assert said[0] == "the template is wrong in 4 places:"
    assert [line.strip().partition(":")[0] for line in said[1:]] == ["min_concurrency", "scaling.mode", "seed", "tarrget"]


def test_of_many_wrong_fields_the_first_are_told() -> None:
    said = refusal({f"a{n}": 1 for n in range(3000)}).splitlines()

    assert said[0] == "the template is wrong in 3000 places:"
    assert [line.strip().partition(":")[0] for line in said[1:]] == [*(f"a{n}" for n in range(20)), "and in 2980 more"]


@pytest.mark.parametrize(
    "given", [{f"a{n}": 1 for n in range(MOST_VALUES + 1)}, {"tags": [1] * (MOST_VALUES + 1)}, {"a": [[1] * 300] * 300}]
)
def test_a_template_of_too_many_values_is_refused_before_they_are_checked(given: dict[str, Any]) -> None:
    assert refusal(given) == f"expected a template of at most {MOST_VALUES} values, got more; leave out what is not needed"


def test_too_many_settings_are_refused() -> None:
    with pytest.raises(InvalidInput, match="expected at most 1000 settings, got 1001"):
        with_settings(parse({"name": "x", "target": {"url": "sqlite:///x"}}), ["seed=1"] * 1001)


@pytest.mark.parametrize(
    "text",
    [
        "target: {url: [postgresql://u:s3cret@h/d]}",
        "target: {pasword: s3cret}",
        "target: {url: 'postgresql://u:s3cret@h/d', : x",
        '{"target": {"url": "postgresql://u:s3cret@h/d" "x"}}',
    ],
)
def test_what_may_be_secret_is_not_repeated(text: str) -> None:
    assert "s3cret" not in refusal(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("just words", "expected a template to be an object with fields, got str"),
        ("", "expected a template to be an object with fields, got NoneType"),
        ('{"a": tru}', "expected a template in JSON, got line 1, column 7"),
        ("a: [", "expected a template in YAML or JSON, got line 1"),
        (b"\xff\xfe\x00", "expected a template in UTF-8"),
        ("duration: 5\nname: a\nduration: 6\n", "got line 3, column 1: the field 'duration' is there twice"),
        ("scaling:\n  mode: AUTO\n  mode: FIXED\n", "got line 3, column 3: the field 'mode' is there twice"),
        ("{scaling: {mode: AUTO, mode: FIXED}}", "the field 'mode' is there twice"),
        ('{"duration": 5, "name": "a", "duration": 6}', "expected a template in JSON, got the field 'duration' twice"),
        ('{"scaling": {"mode": "AUTO", "mode": "FIXED"}}', "expected a template in JSON, got the field 'mode' twice"),
    ],
)
def test_text_that_is_no_template_is_refused(text: str | bytes, said: str) -> None:
    assert said in refusal(text)


_NAMES = st.sampled_from([*FIELDS, *(".".join(old) for old in SPELLINGS)]).flatmap(
    lambda path: st.sampled_from(path.split("."))
)
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(_NAMES | st.text(max_size=3), _ANYTHING, max_size=6))
def test_anything_is_taken_and_read_back_or_refused_as_invalid_input(fields: dict[str, Any]) -> None:
    try:
        document = parse(fields)
    except InvalidInput:
        return
    assert parse(document.canonical()) == document


# The canonical form


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_canonical_form_is_read_back_as_the_same_document(name: str) -> None:
    document = parse(EXAMPLES[name])

    assert parse(json.loads(json.dumps(document.to_json()))) == document


def test_one_spelling_is_kept() -> None:
    kept = parse({"start_concurrency": 7, "duration": "5m"}).to_json()

    assert (kept["find_max"]["start_connections"], kept["timing"]["duration_seconds"]) == (7, 300)
    assert "start_concurrency" not in kept["find_max"]


def test_the_hash_is_of_what_a_run_does_and_of_nothing_else() -> None:
    plain = parse({"duration": 300})

    assert plain.config_hash == parse({"name": "a", "tags": ["b"], "timing": {"duration": "5m"}}).config_hash
    assert plain.config_hash != parse({"duration": 301}).config_hash


@pytest.mark.parametrize("url", ["postgresql://u:s3cret@h/d", "mysql://u@h/d?password=s3cret", "postgresql://u:s3cret@[h/d"])
def test_a_password_is_never_kept(url: str) -> None:
    with pytest.raises(InvalidInput, match="DRUMBEAT_TARGET_PASSWORD") as refused:
        parse({"target": {"url": url}}).to_json()

    assert "s3cret" not in str(refused.value)


# Settings of the command line


def test_settings_are_put_in_by_any_spelling() -> None:
    document = parse({"load_mode": "QPS", "duration": 300, "find_max": {"start_connections": 5}, "tags": ["a"]})

    changed = with_settings(
        document,
        ["scaling.max_workers=10", "duration=1m", "start_concurrency=9", "slo.INSERT.p95_ms=2.5", "tags=[x, y]", "name="],
    )

    assert (changed.scaling.max_workers, changed.timing.duration_seconds) == (10, 60)
    assert (changed.find_max.start_connections, changed.slo["INSERT"].p95_ms) == (9, 2.5)
    assert (changed.tags, changed.name, changed.load_mode) == (["x", "y"], "", LoadMode.QPS)


@pytest.mark.parametrize(
    ("written", "setting", "kind"),
    [
        ("point_lookup", "slo.point_lookup.p95_ms=5", "POINT_LOOKUP"),
        ("POINT_LOOKUP", "slo.Point_Lookup={p95_ms: 5}", "POINT_LOOKUP"),
        ("overall", "slo.all.p95_ms=5", "overall"),
        ("all", "slo.OVERALL.p95_ms=5", "overall"),
        ("all", "slo.p95_ms=5", "overall"),
        ("my_kind", "slo.my_kind.p95_ms=5", "my_kind"),
    ],
)
def test_a_setting_changes_the_limit_of_a_kind_in_any_spelling(written: str, setting: str, kind: str) -> None:
    changed = with_settings(parse({"slo": {written: {"p95_ms": 10}}}), [setting])

    assert {name: each.p95_ms for name, each in changed.slo.items()} == {kind: 5}


@pytest.mark.parametrize(("text", "seconds"), [("1e3", 1000), ("1.5e+2", 150), ("2E-1", 0.2)])
def test_a_number_may_be_written_with_an_exponent(text: str, seconds: float) -> None:
    assert with_settings(parse({}), [f"timing.duration_seconds={text}"]).timing.duration_seconds == seconds
    assert parse(f"timing: {{duration_seconds: {text}}}").timing.duration_seconds == seconds


def test_a_merged_block_may_be_changed_in_yaml() -> None:
    document = parse("slo:\n  UPDATE:\n    <<: {p95_ms: 5, p99_ms: 20}\n    p95_ms: 9\n")

    assert (document.slo["UPDATE"].p95_ms, document.slo["UPDATE"].p99_ms) == (9, 20)


def test_settings_reach_into_lists() -> None:
    sql = {"sql": "SELECT 1"}
    document = parse({"workload": {"operations": [{"kind": "A", "weight": 60, **sql}, {"kind": "B", "weight": 40, **sql}]}})

    changed = with_settings(document, ["workload.operations.0.weight=10", "workload.operations.1.weight=90"])

    assert [each.weight for each in changed.workload.operations or ()] == [10, 90]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("scaling.max_wrokers=3", "scaling.max_wrokers: there is no such field; did you mean scaling.max_workers?"),
        ("scaling.max_workers=many", "scaling.max_workers: expected a whole number, got 'many'"),
        ("scaling.max_workers", "expected a setting such as scaling.max_workers=10"),
        ("=3", "expected a setting such as scaling.max_workers=10"),
        ("seed.low=3", "seed.low: seed is 4 and has no field 'low'"),
        ("workload.operations.7.weight=3", "workload.operations.7.weight: expected a list index from 0 to 0, got '7'"),
        ("workload.operations.².weight=3", "expected a list index from 0 to 0, got '²'"),
        ("workload.operations.٠.weight=3", "expected a list index from 0 to 0, got '٠'"),
        (f"workload.operations.{'0' * 5_000}.weight=3", "expected a list index from 0 to 0, got '000"),
        ("name=[", "name: expected a value in YAML"),
    ],
)
def test_a_setting_that_cannot_be_is_named(setting: str, said: str) -> None:
    document = parse({"seed": 4, "workload": {"operations": [{"kind": "A", "weight": 100, "sql": "S"}]}})

    with pytest.raises(InvalidInput) as refused:
        with_settings(document, [setting])

    assert said in str(refused.value)


# The schema


def test_the_schema_describes_the_fields_and_has_every_spelling() -> None:
    schema = json_schema()

    assert schema["title"] == "Drumbeat benchmark template"
    assert schema["additionalProperties"] is False
    assert schema["properties"]["target_qps"]["description"]
    assert {"const": -1} in schema["$defs"]["ScalingBlock"]["properties"]["max_workers"]["anyOf"]
    assert schema["properties"]["autoscale_enabled"]["deprecated"]
    for old in SPELLINGS:
        if len(old) == 1:
            assert schema["properties"][old[0]]["deprecated"]
