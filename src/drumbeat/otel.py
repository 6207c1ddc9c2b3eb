"""OpenTelemetry for pools: traces from a push to each attempt, and metrics. Needs the extra ``otel``.

In drumbeat.toml: ``[pool] middleware = ["drumbeat.otel:OpenTelemetry"]``; in code: ``connect(middleware=[OpenTelemetry()])``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import MissingExtra
from drumbeat.core.job import AttemptOutcome, Job
from drumbeat.pool.middleware import AttemptCall, Middleware, PushCall

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.trace import SpanKind, Status, StatusCode
except ModuleNotFoundError as missing:
    raise MissingExtra("drumbeat.otel", "otel") from missing

if TYPE_CHECKING:
    from contextvars import Token

_NAME = "drumbeat"
_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600]  #: seconds


@dataclass(frozen=True, slots=True)
class _OpenSpan:
    """A span that has begun, and what is needed to end it."""

    span: trace.Span
    token: "Token[context.Context] | None"  #: restores the context before the span
    began: float


class OpenTelemetry(Middleware):
    """Middleware that records one span per push and per attempt, and counts jobs, attempts and their durations."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Without providers, the global ones are used, as set up by your program or by ``opentelemetry-instrument``."""
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._clock = clock or SystemClock()
        self._open: dict[int, _OpenSpan] = {}  #: by the id of the call, while the push or attempt runs
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._pushed = meter.create_counter("drumbeat.jobs.pushed", "{job}", "Jobs pushed")
        self._attempts = meter.create_counter("drumbeat.attempts", "{attempt}", "Attempts that ended, by outcome")
        self._running = meter.create_up_down_counter("drumbeat.attempts.in_flight", "{attempt}", "Attempts that run now")
        self._duration = meter.create_histogram(
            "drumbeat.attempt.duration", "s", "Duration of attempts", explicit_bucket_boundaries_advisory=_BUCKETS
        )
        self._waiting = meter.create_histogram(
            "drumbeat.job.waiting",
            "s",
            "Time from when a job is due to its attempt",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )

    def before_push(self, push: PushCall) -> None:
        types = {job.type for job in push.jobs}
        attributes = {
            "messaging.system": _NAME,
            "messaging.operation.type": "send",
            "messaging.destination.name": push.pool_id,
            "messaging.batch.message_count": len(push.jobs),
            **({"drumbeat.job.type": types.pop()} if len(types) == 1 else {}),
        }
        self._begin(push, f"push {push.pool_id}", SpanKind.PRODUCER, attributes, None)
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        for job in push.jobs:
            job.headers.update(carrier)

    def after_push(self, push: PushCall) -> None:
        begun = self._open.pop(id(push), None)
        if begun is None:
            return
        if push.error is None:
            for job in push.jobs:
                self._pushed.add(1, {"pool": push.pool_id, "type": job.type})
            if len(push.jobs) == 1 and push.jobs[0].job_id is not None:
                begun.span.set_attribute("messaging.message.id", push.jobs[0].job_id)
        else:
            begun.span.record_exception(push.error)
            begun.span.set_status(Status(StatusCode.ERROR, str(push.error)))
        _end(begun)

    def before_attempt(self, attempt: AttemptCall) -> None:
        job = attempt.job
        attributes = {
            "messaging.system": _NAME,
            "messaging.operation.type": "process",
            "messaging.destination.name": job.pool_id,
            "messaging.message.id": job.job_id,
            "drumbeat.job.type": job.type,
            "drumbeat.job.attempt": job.attempts,
        }
        parent = propagate.extract(attempt.headers)
        self._begin(attempt, f"attempt {job.type or job.pool_id}", SpanKind.CONSUMER, attributes, parent)
        propagate.inject(attempt.headers)  # for a handler in another process, which goes on from this span
        labels = _labels(job)
        self._running.add(1, labels)
        if (waited := _waited(job)) is not None:
            self._waiting.record(waited, labels)

    def on_retry(self, attempt: AttemptCall) -> None:
        if (begun := self._open.get(id(attempt))) is not None and attempt.outcome is not None:
            begun.span.add_event("retry", {"drumbeat.retry_in": attempt.outcome.retry_in.total_seconds()})

    def on_poison(self, attempt: AttemptCall) -> None:
        if (begun := self._open.get(id(attempt))) is not None:
            begun.span.add_event("poison")

    def after_attempt(self, attempt: AttemptCall) -> None:
        begun = self._open.pop(id(attempt), None)
        if begun is None:
            return
        outcome = AttemptOutcome.RELEASED if attempt.outcome is None else attempt.outcome.outcome
        error = None if attempt.outcome is None else attempt.outcome.error
        begun.span.set_attribute("drumbeat.outcome", outcome)
        if attempt.exception is not None:
            begun.span.record_exception(attempt.exception)
        if outcome in (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT):
            begun.span.set_status(Status(StatusCode.ERROR, (error or outcome).partition("\n")[0]))
        labels = _labels(attempt.job)
        self._running.add(-1, labels)
        self._attempts.add(1, {**labels, "outcome": outcome})
        self._duration.record(self._clock.elapsed().total_seconds() - begun.began, {**labels, "outcome": outcome})
        _end(begun)

    def _begin(
        self, call: object, name: str, kind: SpanKind, attributes: Mapping[str, Any], parent: context.Context | None
    ) -> None:
        span = self._tracer.start_span(name, parent, kind, dict(attributes))
        token = context.attach(trace.set_span_in_context(span, parent))
        self._open[id(call)] = _OpenSpan(span, token, self._clock.elapsed().total_seconds())


def _end(begun: _OpenSpan) -> None:
    begun.span.end()
    if begun.token is not None:
        context.detach(begun.token)


def _labels(job: Job) -> dict[str, str]:
    return {"pool": job.pool_id, "type": job.type}


def _waited(job: Job) -> float | None:
    """Return how many seconds the job waited from when it was due until it was begun or claimed; None if unknown."""
    begun = job.begun_at or job.claimed_at
    due: datetime | None = max(filter(None, (job.created_at, job.not_before)), default=None)
    return None if begun is None or due is None else max((begun - due).total_seconds(), 0.0)
