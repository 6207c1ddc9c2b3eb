"""Plain text for the values that pages show: statuses, reasons, outcomes, actions. API, CLI and stored values stay as they are.

The keys are stored values, so that a page needs no module of the bench to show them; tests check that no value is missing.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from drumbeat.core.job import Job, JobStatus

Words = Mapping[str, str]

POISONED = "Failed jobs that are not tried again until they are requeued"  #: the tooltip of every count of poisoned jobs
COSTS = "In the currency of the workers' prices. Hours, days and months are in UTC."  #: the tooltip of every cost of a fleet
JOB_STATUSES: Words = {
    "waiting": "waiting for other jobs", "pending": "ready or delayed", "claimed": "in progress", "done": "done",
    "poisoned": "poisoned", "cancelled": "cancelled",
}  # fmt: skip
ATTEMPT_OUTCOMES: Words = {
    "done": "done", "failed": "failed", "timed_out": "timed out", "crashed": "worker crashed",
    "released": "returned to the queue", "suspended": "sleeps or waits for an event", "cancelled": "cancelled",
}  # fmt: skip
STEP_KINDS: Words = {"step": "step", "sleep": "sleep", "event": "waits for event", "sent": "event received"}
MISSED_TICKS: Words = {"skip": "skip it", "once": "push one job for all", "all": "push a job for each"}
TRIGGER_TYPES: Words = {
    "cron": "schedule (cron)", "webhook": "HTTP request (webhook)", "subprocess": "job pushed (check runs in a subprocess)",
    "in-loop": "job pushed (check runs in the pushing process)", "serverless": "cloud scheduler (serverless)",
}  # fmt: skip
TRIGGER_ACTIONS: Words = {
    "parallelization_checker": "start missing workers", "stale_worker_reaper": "clean up after lost workers",
    "fleet_beat": "scale the fleet",
}  # fmt: skip
RUN_STATUSES: Words = {
    "PREPARED": "prepared", "STARTING": "starting", "RUNNING": "running", "STOPPING": "stopping", "CANCELLING": "cancelling",
    "COMPLETED": "completed", "FAILED": "failed", "CANCELLED": "cancelled",
}  # fmt: skip
PHASES: Words = {
    "PREPARING": "preparing", "WARMUP": "warmup", "MEASUREMENT": "measurement", "COOLDOWN": "cooldown",
    "PROCESSING": "processing",
}  # fmt: skip
LOAD_MODES: Words = {
    "CONCURRENCY": "constant connections (CONCURRENCY)", "QPS": "constant operations/s (QPS)",
    "FIND_MAX_CONCURRENCY": "find max connections (FIND_MAX_CONCURRENCY)",
}  # fmt: skip
SCALING_MODES: Words = {
    "AUTO": "as many workers as needed (AUTO)", "BOUNDED": "workers within min and max (BOUNDED)",
    "FIXED": "exact number of workers (FIXED)",
}  # fmt: skip
END_REASONS: Words = {
    "DURATION": "duration reached", "MAX_FOUND": "maximum found", "BOUNDS_LIMIT_REACHED": "limits of the template reached",
    "GUARDRAIL": "CPU or memory guardrail exceeded", "RESOURCE_EXHAUSTION": "worker hosts overloaded",
    "SERVER_QUEUE": "statements queued in the database", "START_TIMEOUT": "workers did not start in time",
    "WORKER_LOST": "worker lost", "ERROR": "error", "USER": "stopped by a user",
}  # fmt: skip
STEP_OUTCOMES: Words = {
    "STABLE": "stable", "DEGRADED": "degraded", "ERROR_THRESHOLD": "too many errors", "QUEUE_DETECTED": "queue in the database",
    "SLO": "objective missed", "HELD": "undecided, measured again", "ON_TARGET": "on target", "OVER_TARGET": "above target",
    "UNDER_TARGET": "below target",
}  # fmt: skip
SEARCH_STAGES: Words = {
    "STEPPING": "adding connections", "VERIFYING": "verifying the best", "BISECTING": "narrowing down",
    "COMPLETED": "completed",
}  # fmt: skip
MAXIMUM_TYPES: Words = {"TRUE_MAX": "limit of the system (TRUE_MAX)", "BOUNDED_MAX": "limit of the template (BOUNDED_MAX)"}
STATISTICS_STATUSES: Words = {
    "COMPLETED": "complete", "PENDING": "not complete yet", "SKIPPED": "skipped", "FAILED": "failed",
}  # fmt: skip
CHANGES: Words = {
    "regressed": "regressed", "warning": "slightly worse", "improved": "improved", "stable": "stable",
    "inconclusive": "inconclusive",
}  # fmt: skip
COMPARED_FIGURES: Words = {  #: figures of comparisons whose own label needs the report's context
    "best_level": "max stable connections", "best_qps": "operations/s at max stable connections",
    "knee": "estimated peak connections (Universal Scalability Law)",
}  # fmt: skip
_RECOVERY: Words = {
    "MarkLost": "mark as lost: worker", "MarkFailed": "mark as failed: worker",
    "EndOverdue": "end worker that did not drain in time:", "Reap": "clean up after worker", "EndStray": "end unknown instance",
}  # fmt: skip
RUN_ACTIONS: Words = {
    **_RECOVERY, "Spawn": "start worker", "SetTargets": "set connections", "AskToDrain": "drain workers",
    "Begin": "start load in",
    "EnterPhase": "enter phase", "StopLoad": "stop load", "SaveStep": "save step", "NoteFact": "record event",
    "Remember": "save state", "Conclude": "end run", "START": "start load", "STOP": "stop load", "SET_PHASE": "enter phase",
    "SET_WORKER_TARGET": "set connections of", "SCALE_DOWN": "reduce connections of", "GUARDRAIL_WARNING": "guardrail warning",
    "WORKER_MOVED": "status of worker", "WAITING_FOR_WORKERS": "wait for workers",
}  # fmt: skip
FLEET_ACTIONS: Words = {
    **_RECOVERY, "Spawn": "start worker", "AskToDrain": "drain worker", "Fail": "stop faulty worker",
    "NoteInstance": "record instance of worker", "SetTarget": "set load of worker", "ReleaseJobs": "release jobs of worker",
    "ExpireJobs": "release jobs with an expired lease", "ExpandVolume": "expand disk of worker", "Warn": "warn about worker",
    "ForgetRefusals": "retry refused starts",
}  # fmt: skip
POLICIES: Words = {
    "fixed": "constant number of workers (fixed)", "queue_ratio": "one worker per N queued jobs (queue_ratio)",
    "queue_cover": "one worker per queued job (queue_cover)", "lag_aware": "plan ahead for worker startup (lag_aware)",
}  # fmt: skip
RULES: Words = {  #: the rules of policies
    "lag": "startup lag", "flow": "arrival rate", "pressure": "backlog", "use": "busy workers",
    "keep": "cheaper to keep than to restart", "warm": "idle workers to keep", "wait": "max job wait",
    "workers": "constant number", "queue": "queued jobs",
}  # fmt: skip
INPUTS: Words = {  #: the inputs of a fleet's decision
    "workers": "workers", "busy": "busy workers", "ready": "ready jobs", "blocked": "jobs blocked by a limit",
    "delayed": "delayed jobs", "claimed": "jobs in progress", "oldest_waits_s": "longest wait (s)",
    "spawn_lag_s": "worker startup time (s)", "service_s": "mean job duration (s)", "min_workers": "min workers",
    "max_workers": "max workers", "bounds_of": "min and max set by", "paused_until": "paused until (UTC)",
    "disk_free_gb": "free disk space (GB)", "burn_per_hour": "current cost per hour", "spent_this_hour": "cost this hour (UTC)",
    "spent_this_day": "cost today (UTC)", "spent_this_month": "cost this month (UTC)",
}  # fmt: skip
SIMULATED: Words = {  #: the figures of a simulation
    "policy": "policy", "jobs": "jobs", "spawn_lag_s": "worker startup time (s)", "worker_hours": "worker hours",
    "oracle_hours": "worker hours of an ideal fleet", "cost_ratio": "cost ÷ cost of an ideal fleet",
    "wait_p50_s": "job wait p50 (s)", "wait_p95_s": "job wait p95 (s)", "wait_p99_s": "job wait p99 (s)",
    "wait_mean_s": "job wait, mean (s)", "spawns": "workers started",
    "flaps": "flapping (scale-ups soon undone)", "short_lives": "workers that lived less than 2 × startup time",
    "most_workers": "peak workers", "beats": "decisions", "hours": "simulated time (h)", "cost": "cost (currency of the price)",
}  # fmt: skip
_FIRST_WORD = re.compile(r"^\w+")


def plain(words: Words, value: object) -> str | None:
    """Return the plain text of a value; a value that is not listed, such as one of a later version, as it is; None for None."""
    return None if value is None else words.get(str(value), str(value))


def plain_action(words: Words, line: str) -> str:
    """Return a line that begins with the name of an action, such as ``Spawn w1: reason``, with plain text in its place."""
    *parts, last = _FIRST_WORD.sub(lambda name: words.get(name[0], name[0]), line).split(" ")
    return " ".join([*parts, PHASES.get(last, last)])


def job_status(job: Job, now: datetime) -> str:
    """Return the status of a job as pages count it: a pending job is ready, or delayed until its time has come."""
    if job.status is JobStatus.PENDING:
        return "delayed" if job.not_before is not None and job.not_before > now else "ready"
    return JOB_STATUSES[job.status]


def counted(count: int, noun: str, shown: str | None = None) -> str:
    """Return a count with its noun in the singular or plural, such as ``1 job``. ``shown``: the count as other text."""
    return f"{f'{count:,}' if shown is None else shown} {noun}{'' if count == 1 else 's'}"


def capitalised(text: str) -> str:
    """Return a text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]
