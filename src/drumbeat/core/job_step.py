"""The durable steps of a job: what it has finished, what it sleeps or waits for, and the events that were sent to it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from drumbeat.core.job import Token


class StepKind(StrEnum):
    """The kinds of steps of a job."""

    STEP = "step"  #: a function was called; its result is kept
    SLEEP = "sleep"  #: the job sleeps until a moment
    EVENT = "event"  #: the job waits for an event
    SENT = "sent"  #: an event that was sent to the job, whether or not the job waits for it


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """One step of a job: a row of ``job_steps``. All times are by the store's clock."""

    position: int  #: its number among the steps of the job, from 1; for an event that was sent: −1, −2, …
    name: str
    kind: StepKind
    result: Any = None  #: plain JSON: what the function returned, or the value of the event
    error: str | None = None  #: how it failed, if the job went on after that
    started_at: datetime
    finished_at: datetime | None = None  #: of a sleep: its end; None: the job still waits for the event
    until: datetime | None = None  #: the end of a sleep, or of the wait for an event; None: no limit
    epoch: int = 0  #: the claim of the job under which it was recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStep:
    """A step to record, with the claim of the worker that runs the job."""

    token: Token
    step: JobStep


def in_step_order(steps: list[JobStep]) -> list[JobStep]:
    """Return the events that were sent to a job, in the order of sending, then its steps, in the order of running."""
    return sorted(steps, key=lambda step: (step.position > 0, abs(step.position)))
