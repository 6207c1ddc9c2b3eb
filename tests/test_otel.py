"""OpenTelemetry: spans from a push to its attempts, and metrics."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs the extra drumbeat[otel]")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import drumbeat
from drumbeat import testing
from drumbeat.core.errors import InvalidInput
from drumbeat.otel import OpenTelemetry
from drumbeat.pool.worker.context import JobContext


class Collected:
    """What was recorded, in memory."""

    def __init__(self) -> None:
        self.spans_out, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.spans_out))
        self.meters = MeterProvider([self.reader])
        self.middleware = OpenTelemetry(self.traces, self.meters)

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.spans_out.get_finished_spans() if span.kind is kind]

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        found = (
            []
            if data is None
            else [metric for each in data.resource_metrics for one in each.scope_metrics for metric in one.metrics]
        )
        return [point for metric in found if metric.name == name for point in metric.data.data_points]


@pytest.fixture
def collected() -> Iterator[Collected]:
    found = Collected()
    yield found
    found.traces.shutdown()
    found.meters.shutdown()


async def test_an_attempt_is_a_child_of_its_push(collected: Collected) -> None:
    async with testing.pool("papers", middleware=[collected.middleware]) as pool:
        job_id = await pool.push({"id": 1}, type="summarise")
        await pool.run_until_empty(lambda payload: payload)

    (push,), (attempt,) = collected.spans(SpanKind.PRODUCER), collected.spans(SpanKind.CONSUMER)
    assert attempt.parent is not None
    assert attempt.parent.span_id == push.context.span_id
    assert attempt.context.trace_id == push.context.trace_id
    assert push.attributes is not None
    assert push.attributes["messaging.message.id"] == job_id
    assert dict(attempt.attributes or {}) == {
        "messaging.system": "drumbeat",
        "messaging.operation.type": "process",
        "messaging.destination.name": "papers",
        "messaging.message.id": job_id,
        "drumbeat.job.type": "summarise",
        "drumbeat.job.attempt": 1,
        "drumbeat.outcome": "done",
    }


async def test_the_push_is_a_child_of_the_span_around_it_and_the_handler_runs_within_the_attempt(collected: Collected) -> None:
    inner: list[int] = []

    async def handle() -> None:
        inner.append(trace.get_current_span().get_span_context().span_id)

    async with testing.pool(middleware=[collected.middleware]) as pool:
        with collected.traces.get_tracer("web").start_as_current_span("request") as request:
            await pool.push(1)
            assert trace.get_current_span() is request
        await pool.run_until_empty(handle)

    (push,), (attempt,) = collected.spans(SpanKind.PRODUCER), collected.spans(SpanKind.CONSUMER)
    assert push.parent is not None
    assert push.parent.span_id == request.get_span_context().span_id
    assert inner == [attempt.context.span_id]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_a_program_gets_the_span_of_its_attempt(collected: Collected) -> None:
    async with testing.pool(middleware=[collected.middleware]) as pool:
        job_id = await pool.push(1)
        await pool.run_until_empty("command:printenv TRACEPARENT")
        printed = await pool.result(job_id)

    (attempt,) = collected.spans(SpanKind.CONSUMER)
    assert f"{attempt.context.span_id:016x}" in printed


async def test_every_attempt_has_a_span_and_a_retry_is_an_event_of_it(collected: Collected) -> None:
    def fail(payload: int, context: JobContext) -> None:
        raise ValueError("no luck")

    async with testing.pool(middleware=[collected.middleware]) as pool:
        await pool.push(1, max_attempts=2)
        await pool.run_until_empty(fail)

    first, second = collected.spans(SpanKind.CONSUMER)
    assert [[event.name for event in span.events] for span in (first, second)] == [
        ["retry", "exception"],
        ["poison", "exception"],
    ]
    assert [(span.attributes or {})["drumbeat.job.attempt"] for span in (first, second)] == [1, 2]
    assert all(span.status.status_code is StatusCode.ERROR for span in (first, second))
    assert first.status.description == "ValueError: no luck"


async def test_jobs_and_attempts_are_counted_and_timed(collected: Collected) -> None:
    def handle(payload: int) -> None:
        if payload == 2:
            raise drumbeat.JobFailure("no", fatal=True)

    async with testing.pool("papers", middleware=[collected.middleware]) as pool:
        await pool.push_many([1, 2], type="t")
        await pool.clock.advance(timedelta(seconds=3))
        await pool.run_until_empty(handle)

    of = {"pool": "papers", "type": "t"}
    assert [(point.attributes, point.value) for point in collected.points("drumbeat.jobs.pushed")] == [(of, 2)]
    ended = {point.attributes["outcome"]: point.value for point in collected.points("drumbeat.attempts")}
    assert ended == {"done": 1, "failed": 1}
    assert [point.value for point in collected.points("drumbeat.attempts.in_flight")] == [0]
    assert sum(point.count for point in collected.points("drumbeat.attempt.duration")) == 2
    (waiting,) = collected.points("drumbeat.job.waiting")
    assert (waiting.count, waiting.sum) == (2, 6.0)


async def test_a_push_that_fails_is_an_error_in_its_span(collected: Collected) -> None:
    async with testing.pool(middleware=[collected.middleware]) as pool:
        with pytest.raises(InvalidInput):
            await pool.push(1, job_id="j000000000001")

    (push,) = collected.spans(SpanKind.PRODUCER)
    assert push.status.status_code is StatusCode.ERROR
    assert collected.points("drumbeat.jobs.pushed") == []


def test_without_the_library_the_error_names_the_command() -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; import drumbeat.otel"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

    assert "pip install 'drumbeat[otel]'" in done.stderr.strip().splitlines()[-1]
