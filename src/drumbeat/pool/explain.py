"""Explains why a job is not running, or how it ended. Pure functions: all data comes in as ``ExplainInputs``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from drumbeat.core.job import ENDED, Attempt, AttemptOutcome, IfFailed, Job, JobId, JobStatus
from drumbeat.core.job_step import JobStep, StepKind
from drumbeat.core.plain import short_json, time_span
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Health, Worker, WorkerStatus, judge
from drumbeat.pool.model import handler_command, not_loaded_message, paused_types
from drumbeat.pool.result_ttl import is_expired

MOST_NAMED = 5
MOST_PARENTS = 1000  #: parents of a waiting job that are read to name some that have not ended


class ReasonCode(StrEnum):
    """Code of the reason why a job waits, runs or has ended."""

    DONE = "done"
    CANCELLED = "cancelled"
    POISONED = "poisoned"
    RUNNING = "running"  #: claimed, and its worker is alive
    STRANDED = "stranded"  #: claimed by a worker that is gone or silent; its lease will run out
    WAITING = "waiting"  #: for other jobs
    PAUSED = "paused"
    DELAYED = "delayed"
    SLEEPING = "sleeping"  #: its handler called ``sleep``
    AWAITS_EVENT = "awaits_event"  #: its handler called ``wait_for``
    GROUP_FULL = "group_full"
    RATE_LIMITED = "rate_limited"
    WORKERS_FAIL = "workers_fail"  #: new workers fail before they run a job, so no more are started for now
    NO_WORKERS = "no_workers"
    NO_CAPABILITY = "no_capability"
    NO_HANDLER = "no_handler"
    BEHIND_OTHERS = "behind_others"
    ALONE = "alone"  #: it waits for a worker without other jobs
    NEXT = "next"  #: the next free worker runs it
    SCHEDULE = "schedule"  #: a schedule pushed it; not a reason, but an addition to one


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainInputs:
    """A job, its pool and everything in the store that can keep the job from running."""

    now: datetime
    pool: PoolRow
    job: Job
    workers: tuple[Worker, ...]  #: the pool's live workers
    attempts: tuple[Attempt, ...] = ()
    group_held: tuple[JobId, ...] = ()  #: claimed jobs of the job's group
    group_recent: int = 0  #: how many jobs of its group were claimed in the last period of the rate limit
    ahead: int = 0  #: how many ready jobs will be claimed before this one
    ahead_is_more: bool = False  #: whether more than ``ahead`` jobs come first: counting stopped at a limit
    types: tuple[str, ...] = ()  #: job types that the pool's workers have handlers for; empty: all types
    triggered: bool = False  #: whether a checker has ever run for the pool
    not_loaded: str | None = None  #: why workers cannot load the handler of the job's type
    trouble: str | None = None  #: why no workers are started at the moment
    failure: str | None = None  #: why the newest worker failed, if it failed before it ran a job
    parents: tuple[Job, ...] = ()  #: the jobs that it waits for or waited for, if it waits; at most MOST_PARENTS
    steps: tuple[JobStep, ...] = ()  #: its durable steps, and the events that were sent to it
    schedule: tuple[str, ...] = ()  #: what there is to say about the schedule that pushed the job


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason for the state of a job: the reason's code, a sentence, and when the reason ends, if known."""

    why: ReasonCode
    says: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplanation:
    """The reasons for the state of a job, most important first, and its past attempts."""

    job_id: JobId
    status: JobStatus
    reasons: tuple[Reason, ...]
    history: tuple[str, ...] = field(default=())
    steps: tuple[str, ...] = field(default=())  #: its durable steps, one sentence each

    @property
    def why(self) -> ReasonCode:
        return self.reasons[0].why

    def __str__(self) -> str:
        return "\n".join((f"{self.job_id} is {self.status}: {self.reasons[0].says}", *(r.says for r in self.reasons[1:])))


def explain(facts: ExplainInputs) -> JobExplanation:
    """Return the reasons why the job waits, runs or has ended."""
    reasons = tuple(_pending(facts)) if facts.job.status is JobStatus.PENDING else (_settled(facts),)
    more = tuple(Reason(why=ReasonCode.SCHEDULE, says=says) for says in facts.schedule)
    history = tuple(_attempt(attempt) for attempt in facts.attempts)
    return JobExplanation(
        job_id=facts.job.job_id,
        status=facts.job.status,
        reasons=reasons + more,
        history=history,
        steps=tuple(_step(step) for step in facts.steps),
    )


def _settled(facts: ExplainInputs) -> Reason:
    job = facts.job
    match job.status:
        case JobStatus.WAITING:
            return _waiting(facts)
        case JobStatus.CLAIMED:
            return _claimed(facts)
        case JobStatus.POISONED:
            return Reason(why=ReasonCode.POISONED, says=_poisoned(job))
        case JobStatus.CANCELLED:
            skipped = f": {job.last_error}" if job.last_error and job.last_error.startswith("skipped") else ""
            says = f"it was cancelled{_at(job.finished_at)}{skipped}; requeue it to try again"
            return Reason(why=ReasonCode.CANCELLED, says=says)
        case _:
            expired = job.result is not None and is_expired(facts.pool, job, facts.now)
            more = "; its result has expired, because its pool keeps results for a limited time" if expired else ""
            return Reason(why=ReasonCode.DONE, says=f"it was done{_at(job.finished_at)}{more}")


def _waiting(facts: ExplainInputs) -> Reason:
    """Return the jobs that a waiting job waits for and, if a failed job blocks it, which job must be requeued."""
    ended = ENDED if facts.job.if_failed is IfFailed.RUN else frozenset({JobStatus.DONE})
    open_ones = [parent for parent in facts.parents if parent.status not in ended]
    left = len(open_ones) if facts.job.after_any else facts.job.waits_for
    named = ", ".join(f"{parent.job_id} ({parent.status})" for parent in open_ones[:MOST_NAMED])
    unnamed = left - min(len(open_ones), MOST_NAMED)
    more = f" and {unnamed} more" if unnamed > 0 else ""
    bound = "at least " if len(facts.parents) >= MOST_PARENTS else ""
    count = (
        f"one of {bound}{_times(len(facts.parents), 'job')}"
        if facts.job.after_any
        else f"{left} of {bound}{len(facts.parents)} jobs"
    )
    failed = [parent for parent in open_ones if parent.status in (JobStatus.POISONED, JobStatus.CANCELLED)]
    hint = (
        f"; requeue {failed[0].job_id} to go on"
        if failed and (len(failed) == len(open_ones) or not facts.job.after_any)
        else ""
    )
    return Reason(why=ReasonCode.WAITING, says=f"it waits for {count}" + (f": {named}{more}{hint}" if named else ""))


def _poisoned(job: Job) -> str:
    if job.crashes and job.crashes + job.suspicions >= job.max_crashes:
        lost = _times(job.crashes + job.suspicions, "worker")
        cause = f"{lost} died while they held it, the last time with no other job beside it (limit {job.max_crashes})"
    elif job.failures >= job.max_attempts:
        cause = f"it failed {_times(job.failures, 'time')} (limit {job.max_attempts})"
    else:
        cause = "its failure was fatal: another attempt would fail too"
    last = f"; last error: {job.last_error.splitlines()[0]}" if job.last_error else ""
    return f"it was poisoned because {cause}{last}; requeue it once the cause is fixed"


def _claimed(facts: ExplainInputs) -> Reason:
    job = facts.job
    worker = next((each for each in facts.workers if each.holder == job.holder), None)
    since = f"claimed by {job.lease_owner}{_at(job.claimed_at, 'since')}"
    if job.cancel_requested:
        since += ", cancellation requested"
    if worker is not None and judge(worker, facts.now, facts.pool.thresholds) is Health.HEALTHY:
        return Reason(why=ReasonCode.RUNNING, says=f"{since}; {_beat(worker, facts.now)}{_progress(job)}")
    until = job.lease_until
    gone = "is no live worker: it ended, or never joined" if worker is None else f"is silent: {_beat(worker, facts.now)}"
    if worker is None and until is not None and until > facts.now:
        return Reason(why=ReasonCode.RUNNING, says=f"{since}, which {gone}; its lease holds until {_clock(until)}", until=until)
    back = f"its lease runs out at {_clock(until)}{_then(job)}" if until and until > facts.now else _overdue(job)
    return Reason(why=ReasonCode.STRANDED, says=f"{since}, which {gone}; {back}", until=until)


def _then(job: Job) -> str:
    return "; then it is taken back" if job.lease_extended else ", and is extended once before it is taken back"


def _overdue(job: Job) -> str:
    if not job.lease_extended:
        return "its lease has run out: the next worker or reaper extends it once, then takes it back (drumbeat pool reap)"
    return "its lease has run out: the next worker or reaper takes it back (drumbeat pool reap)"


def _pending(facts: ExplainInputs) -> Iterator[Reason]:
    found = [*_held_back(facts), *_short_of_workers(facts)]
    yield from found or [_in_line(facts)]


def _held_back(facts: ExplainInputs) -> Iterator[Reason]:
    """Yield the reasons why no worker is allowed to claim the job now: a pause, a delay, limits of its group."""
    job, now, paused = facts.job, facts.now, facts.pool.paused_until
    if paused is not None and paused > now:
        yield Reason(why=ReasonCode.PAUSED, says=f"pool {facts.pool.pool_id} is paused until {_clock(paused)}", until=paused)
    if job.type in paused_types(facts.pool.policy):
        resume = f"drumbeat pool resume {facts.pool.pool_id} --type {job.type or repr('')}"
        yield Reason(why=ReasonCode.PAUSED, says=f"jobs of type {job.type!r} are paused; resume them with: {resume}")
    if (suspended := _suspension(facts)) is not None:
        yield suspended
    elif job.not_before is not None and job.not_before > now:
        after = f" after {_times(job.failures, 'failure')}" if job.failures else ""
        left = time_span(job.not_before - now)
        yield Reason(
            why=ReasonCode.DELAYED,
            says=f"it is delayed until {_clock(job.not_before)}, {left} from now{after}",
            until=job.not_before,
        )
    if job.group is not None:
        yield from _group(facts, job.group)


def _suspension(facts: ExplainInputs) -> Reason | None:
    """Return what a suspended job sleeps or waits for; None if it is not suspended."""
    job, now = facts.job, facts.now
    if job.status is not JobStatus.PENDING or job.not_before is None or job.not_before <= now:
        return None
    awaited = [step for step in facts.steps if step.kind is StepKind.EVENT and step.finished_at is None]
    if awaited:
        named = " or ".join(repr(step.name) for step in awaited)
        until = min((step.until for step in awaited if step.until is not None), default=None)
        limit = "" if until is None else f" until {_clock(until)}"
        send = f"drumbeat pool send {job.pool_id} {job.job_id} {awaited[0].name} JSON"
        says = f"it waits for event {named}{limit}; send it with: {send}"
        return Reason(why=ReasonCode.AWAITS_EVENT, says=says, until=until)
    last = max(facts.steps, key=lambda step: step.position, default=None)
    if last is None or last.kind is not StepKind.SLEEP or last.until is None or last.until <= now:
        return None
    left = time_span(last.until - now)
    return Reason(why=ReasonCode.SLEEPING, says=f"it sleeps until {_clock(last.until)}, {left} from now", until=last.until)


def _step(step: JobStep) -> str:
    """Describe a step of a job, or an event that was sent to it, in one sentence."""
    match step.kind:
        case StepKind.SENT:
            return f"event {step.name!r} was sent{_at(step.started_at)}: {short_json(step.result)}"
        case StepKind.SLEEP:
            return f"step {step.position} sleep:{_at(step.started_at, 'since')}{_at(step.until, 'until')}"
        case StepKind.EVENT if step.finished_at is None:
            return (
                f"step {step.position} waits for event {step.name!r}{_at(step.started_at, 'since')}{_at(step.until, 'until')}"
            )
    took = "" if step.finished_at is None else f" in {(step.finished_at - step.started_at).total_seconds():.3f} s"
    how = f"failed: {step.error}" if step.error is not None else f"result {short_json(step.result)}"
    what = f"event {step.name!r}" if step.kind is StepKind.EVENT else step.name
    return f"step {step.position} {what}: finished{_at(step.finished_at)}{took}, {how}"


def _group(facts: ExplainInputs, group: str) -> Iterator[Reason]:
    limit, rate = facts.job.group_limit, facts.job.group_rate
    if limit is not None and len(facts.group_held) >= limit:
        held = _names(facts.group_held)
        yield Reason(why=ReasonCode.GROUP_FULL, says=f"it waits for group {group!r}: held by {held}, limit {limit}")
    if rate is not None and facts.group_recent >= rate.count:
        claims = f"{facts.group_recent} claims in {time_span(rate.per)}"
        says = f"it waits for the rate limit of group {group!r}: {claims}, limit {rate.count}"
        yield Reason(why=ReasonCode.RATE_LIMITED, says=says)


def _short_of_workers(facts: ExplainInputs) -> Iterator[Reason]:
    job, able = facts.job, _able(facts)
    if facts.types and job.type not in facts.types:
        add = handler_command(facts.pool.pool_id, job.type)
        had = f"the pool has no handler for type {job.type!r}; it has: {', '.join(facts.types)}"
        yield Reason(why=ReasonCode.NO_HANDLER, says=f"{had}; add one with: {add}")
    elif facts.not_loaded is not None:
        yield Reason(why=ReasonCode.NO_HANDLER, says=not_loaded_message(facts.pool.pool_id, facts.not_loaded))
    if facts.trouble is not None:
        yield Reason(why=ReasonCode.WORKERS_FAIL, says=facts.trouble)
    unstarted = next((worker.not_started for worker in facts.workers if worker.not_started), None)
    if all(worker.not_started for worker in facts.workers):
        hint = "" if facts.triggered else f", and nothing starts any: drumbeat pool work {facts.pool.pool_id}"
        hint = f"; one could not be started: {unstarted}" if unstarted else hint
        failed = facts.failure if facts.trouble is None and not unstarted else None
        hint += f"; the last worker failed: {failed.splitlines()[0]}" if failed else ""
        yield Reason(why=ReasonCode.NO_WORKERS, says=f"pool {facts.pool.pool_id} has no live worker{hint}")
    elif facts.not_loaded is None and (types := _types_of(facts.workers)) and job.type not in types:
        had = f"no live worker has a handler for type {job.type!r}; they have: {', '.join(sorted(types))}"
        yield Reason(
            why=ReasonCode.NO_HANDLER, says=f"{had}; a task that was renamed needs its old name: @task(name={job.type!r})"
        )
    elif job.capability is not None and not able:
        yield Reason(
            why=ReasonCode.NO_CAPABILITY,
            says=f"none of {_times(len(facts.workers), 'live worker')} has capability {job.capability!r}",
        )


def _in_line(facts: ExplainInputs) -> Reason:
    able = _able(facts)
    if facts.job.must_run_alone:
        lost = _times(facts.job.crashes + facts.job.suspicions, "worker")
        return Reason(
            why=ReasonCode.ALONE, says=f"it waits for a worker that runs nothing else, because {lost} died while they held it"
        )
    if facts.ahead:
        count = f"{'more than ' if facts.ahead_is_more else ''}{_times(facts.ahead, 'job')}"
        says = f"{count} {'is' if facts.ahead == 1 else 'are'} before it, and {_busy(able)}"
        return Reason(why=ReasonCode.BEHIND_OTHERS, says=says)
    return Reason(why=ReasonCode.NEXT, says=f"it is next; {_busy(able)}")


def _busy(workers: Sequence[Worker]) -> str:
    busy = sum(1 for worker in workers if worker.active > 0)
    return f"{busy} of {_times(len(workers), 'worker')} {'is' if len(workers) == 1 else 'are'} busy"


def _types_of(workers: Sequence[Worker]) -> set[str]:
    """Return the types of jobs that the started workers have handlers for; empty if one of them takes all types."""
    types = [worker.meta.get("types") for worker in workers if worker.not_started is None]
    return set() if None in types else {name for each in types for name in each or ()}


def _able(facts: ExplainInputs) -> list[Worker]:
    """Return the live workers that can claim the job: not draining, and with the capability it needs."""
    need = facts.job.capability
    started = [worker for worker in facts.workers if worker.not_started is None]
    staying = [worker for worker in started if worker.status is not WorkerStatus.DRAINING]
    taking = [worker for worker in staying if facts.job.type in worker.meta.get("types", [facts.job.type])]
    return [worker for worker in taking if need is None or need in worker.capabilities]


def _attempt(attempt: Attempt) -> str:
    said = f": {attempt.error.splitlines()[0]}" if attempt.error else ""
    outcome = attempt.outcome or "still running"
    undone = " (costs no attempt)" if attempt.outcome in (AttemptOutcome.RELEASED, AttemptOutcome.SUSPENDED) else ""
    return f"attempt {attempt.n} by {attempt.worker_id}{_at(attempt.started_at)}: {outcome}{undone}{said}"


def _beat(worker: Worker, now: datetime) -> str:
    if worker.heartbeat_at is None:
        return "it has sent no heartbeat yet"
    return f"its last heartbeat was {time_span(max(now - worker.heartbeat_at, timedelta()))} ago"


def _progress(job: Job) -> str:
    if job.progress is None:
        return ""
    return f"; {job.progress:.0%} done" + (f" ({job.progress_note})" if job.progress_note else "")


def _names(ids: Sequence[JobId]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(ids[:MOST_NAMED]) + more


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _clock(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _at(moment: datetime | None, word: str = "at") -> str:
    return "" if moment is None else f" {word} {_clock(moment)}"
