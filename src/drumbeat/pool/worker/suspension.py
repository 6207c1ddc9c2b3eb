"""The suspension of an attempt: a handler that sleeps or waits for an event ends, and the job goes on in a later attempt."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from drumbeat.core.errors import first_error
from drumbeat.core.job import LONGEST_WAIT, AttemptOutcome, Job, JobOutcome


class JobSuspended(BaseException):
    """Ends a handler that sleeps or waits for an event; the job goes on in a later attempt. Do not catch it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspension:
    """Why and until when an attempt is suspended."""

    why: str
    until: datetime | None  #: by the store's clock; None: only an event ends it
    seen_events: int | None = None  #: how many events the attempt knew of; None: it sleeps, whatever events come

    def or_earlier(self, other: "Suspension") -> "Suspension":
        """Combine the suspensions of two tasks: the job continues at the earlier time or at an event that a task waits for."""
        seen = other.seen_events if self.seen_events is None else self.seen_events
        until = min((each for each in (self.until, other.until) if each is not None), default=None)
        return Suspension(why=f"{self.why}, or {other.why}", until=until, seen_events=seen)

    def outcome(self, job: Job, now: datetime) -> JobOutcome:
        """Return the outcome of an attempt that ends ``now``, by the store's clock."""
        left = LONGEST_WAIT if self.until is None else self.until - now
        return JobOutcome(
            token=job.token,
            outcome=AttemptOutcome.SUSPENDED,
            error=self.why,
            retry_in=max(min(left, LONGEST_WAIT), timedelta()),
            seen_events=self.seen_events,
        )


def error_beside_suspension(error: BaseException) -> BaseException | None:
    """Return the error with which the handler failed although its attempt is suspended, for example the StepFailed of a step in
    another task than the sleep. None if JobSuspended ended the handler, or an error that was raised because of it."""
    found, seen = first_error(error), set[int]()
    each: BaseException | None = found
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        if isinstance(each, BaseExceptionGroup) and not isinstance(each, Exception):  # what the executor has wrapped
            each = found = first_error(each)
        if isinstance(each, JobSuspended):
            return None
        each = each.__cause__ or each.__context__
    return found
