"""Payloads are JSON within a limit; what is wrong is named. Options are read, and refused, by name."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Backoff, RateLimit
from drumbeat.core.pool import PoolKind, pool
from drumbeat.pool import payload
from drumbeat.pool.envelope import LargeReference, seal
from drumbeat.pool.job_options import job_from_line, new_job, new_jobs, one_job
from drumbeat.pool.payload import as_json
from drumbeat.pool.worker.options import ExecutorKind, Mode, WorkPlan, changed_handlers, parse_handlers, plan_of
from pool.examples import Paper

flat = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


class SubText(str):
    """Text of a class of its own, such as Django's SafeString."""


class Grade(IntEnum):
    GOOD = 1


@dataclass
class Box:
    inside: Any


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": [1, 2.5, None, True, "ü"]}, {"a": [1, 2.5, None, True, "ü"]}),
        (Paper(title="x"), {"title": "x", "pages": 1}),
        (Box(inside=[Paper(title="y")]), {"inside": [{"title": "y", "pages": 1}]}),
        ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, {"when": "2026-01-01T00:00:00+00:00"}),
    ],
)
def test_what_can_be_json_is_made_json(value: Any, written: Any) -> None:
    assert as_json(value) == written


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": {"b": [1, object()]}}, r"payload\.a\.b\[1\] to be JSON, got object"),
        ({"rate": float("nan")}, r"payload\.rate to be JSON, got nan"),
        ({"a": {1: object()}}, r"keys of payload\.a to be text, got 1"),
        ({"file": b"bytes"}, r"payload\.file to be JSON, got bytes"),
        ("\ud800", r"^expected payload to be text that UTF-8 can encode, got '\\ud800', which has half of a surrogate pair$"),
        ({"a": ["ü", "x\udfff"]}, r"^expected payload\.a\[1\] to be text that UTF-8 can encode, got 'x\\udfff'"),
        ({"a": {"\ud800": 1}}, r"^expected the keys of payload\.a to be text that UTF-8 can encode"),
        (
            {"big": "x" * 2_000_000, "small": 1},
            r"at most 1048576 bytes of JSON, got 20000\d\d; the biggest part is payload\.big",
        ),
    ],
)
def test_what_cannot_be_json_is_refused_by_name(value: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        as_json(value)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (np.float64(0.5), 0.5),
        ({"a": [SubText("x"), Grade.GOOD]}, {"a": ["x", 1]}),
        ({SubText("a"): 1}, {"a": 1}),
        ({"a": {True: 1, None: 2}}, {"a": {"true": 1, "null": 2}}),
        (
            {"mean": np.float64(0.5), "when": datetime(2026, 1, 1, tzinfo=UTC)},
            {"mean": 0.5, "when": "2026-01-01T00:00:00+00:00"},
        ),
        (Box(inside=SubText("ü")), {"inside": "ü"}),
    ],
)
def test_what_only_looks_like_json_becomes_json_that_a_store_takes(value: Any, kept: Any) -> None:
    made = as_json(value)

    assert made == kept
    assert msgspec.json.decode(msgspec.json.encode(made)) == kept


@given(flat | st.dictionaries(st.text(max_size=20), flat, max_size=20))
def test_what_is_small_at_a_glance_is_no_bigger_than_that(value: Any) -> None:
    written = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")

    assert payload._max_bytes(value) >= len(written) or payload._max_bytes(value) == 0
    assert as_json(value) is value


@pytest.mark.parametrize("value", [float("inf"), [1], {"a": [1]}, {1: "a"}, {"a": {}}, 2**63, object(), {"a": Box(inside=1)}])
def test_what_needs_a_closer_look_gets_one(value: Any) -> None:
    assert payload._max_bytes(value) == 0


def test_something_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(InvalidInput, match="100 deep"):
        as_json(loop)


def test_options_are_read() -> None:
    job = new_job(
        1,
        delay=90,
        run_at="2026-12-24T18:00:00",
        timeout=timedelta(minutes=1),
        backoff={"first": 5},
        group="g",
        group_rate={"count": 3, "per": 60},
    )

    assert (job.delay, job.timeout) == (timedelta(seconds=90), timedelta(minutes=1))
    assert job.run_at == datetime(2026, 12, 24, 18, tzinfo=UTC)
    assert job.backoff == Backoff(first=timedelta(seconds=5))
    assert job.group_rate == RateLimit(count=3, per=timedelta(minutes=1))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"prio": 1}, "unknown option 'prio'; expected one of type, job_id, priority"),
        ({"priority": "high"}, "expected priority to be a whole number, got 'high'"),
        ({"delay": -1}, "expected delay to be a timedelta or seconds, 0 or more and at most a hundred years, got -1"),
        ({"max_attempts": 0}, "expected max_attempts to be a whole number, 1 or more, got 0"),
        ({"run_at": "tomorrow"}, "expected run_at to be a datetime or an ISO time before the year 9000, got 'tomorrow'"),
        ({"group_rate": {"count": 3}}, "expected group_rate to be a RateLimit"),
        ({"backoff": {"fist": 1}}, "expected backoff to be a Backoff"),
        ({"type": 7}, "expected type to be text, got 7"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        new_job({}, **options)


def test_many_jobs_share_their_options_and_each_has_its_payload() -> None:
    jobs = new_jobs((n for n in range(3)), priority=4)

    assert [*jobs] == [new_job(n, priority=4) for n in range(3)]
    assert [*one_job("x")] == [new_job("x")]


def test_of_many_payloads_the_wrong_one_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"job 2: expected payload.name to be JSON, got object"):
        new_jobs([1, 2, {"name": object()}])


def test_a_line_may_be_a_whole_job_as_it_was_listed() -> None:
    line = {"payload": {"n": 1}, "priority": 3, "status": "done", "attempts": 2, "result": 5, "timeout": None, "type": ""}

    job = job_from_line(line)

    assert (job.payload, job.priority, job.job_id, job.type) == ({"n": 1}, 3, None, "")


def test_a_line_with_a_reference_to_a_large_payload_is_refused() -> None:
    reference = seal(None, {"trace": "1"}, LargeReference(key="k", size=2_000_000, sha256="0"))

    with pytest.raises(
        InvalidInput, match=r"got a reference to a payload of 2000000 bytes, .*drumbeat pool show POOL JOB --json"
    ):
        job_from_line({"payload": reference, "status": "done"})
    assert job_from_line({"payload": {"$drumbeat": "my own"}}).payload == {"$drumbeat": "my own"}


@pytest.mark.parametrize("line", [7, ["payload"], {"priority": 1}])
def test_a_line_that_is_no_job_is_refused(line: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a job as an object with the field payload"):
        job_from_line(line)


def test_a_plan_is_kept_in_a_pools_policy_and_read_back() -> None:
    plan = WorkPlan(
        handlers={"a": "m:f", "": "command:cat"},
        mode=Mode.ONCE,
        executor=ExecutorKind.PROCESSES,
        concurrency=4,
        capabilities=("gpu",),
        lease=timedelta(seconds=30),
        max_jobs=10,
    )

    kept = pool("p", PoolKind.JOBS, None, max_workers=3, **plan.to_json())

    assert plan_of(kept) == plan


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"mode": "twice"}, "expected mode to be one of once, drain, loop, got 'twice'"),
        ({"concurrency": "many"}, "expected concurrency to be a whole number, got 'many'"),
        ({"concurrency": 0}, "expected concurrency to be between 1 and"),
        ({"handlers": {"a": "nowhere"}}, "expected module:function"),
        ({"handlers": ["m:f"]}, "expected handlers to be an object"),
        ({"lease": 0}, "expected lease to be above 0"),
        ({"prefetch": -5}, "expected prefetch to be 0 or more, got -5"),
    ],
)
def test_a_wrong_policy_names_the_pool_and_the_key(policy: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=f"invalid policy of pool p: {says}"):
        plan_of(pool("p", PoolKind.JOBS, None, **policy))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["m:f"], {"": "m:f"}),
        (["echo=m:f", "m:g"], {"echo": "m:f", "": "m:g"}),
        (["command:env A=1 cat"], {"": "command:env A=1 cat"}),
        (["x=command:env A=1 cat"], {"x": "command:env A=1 cat"}),
    ],
)
def test_handlers_are_read_by_type(given: list[str], found: dict[str, str]) -> None:
    assert parse_handlers(given) == found


def test_handlers_are_added_and_removed_by_type() -> None:
    current = {"a": "m:a", "b": "m:b", "": "m:f"}

    assert changed_handlers(current, {"c": "m:c"}, iter(["a", ""])) == {"b": "m:b", "c": "m:c"}
    with pytest.raises(InvalidInput, match="type 'd' has no handler to remove"):
        changed_handlers(current, {}, iter(["a", "d"]))


def test_two_handlers_for_one_type_are_refused() -> None:
    with pytest.raises(InvalidInput, match="got two: 'm:f' and 'm:g'"):
        parse_handlers(["a=m:f", "a=m:g"])
