"""The steps of an engine's check: runs each, measures its time, and reports what was found or why it failed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, MissingExtra, SpawnCause, SpawnError

T = TypeVar("T")

CLEAN_UP: Final = "clean up"  #: the name of the step that removes what the check has made
_CAUSES: Final = {
    SpawnCause.NO_CAPACITY: "the engine is full",
    SpawnCause.BAD_REQUEST: "the engine does not accept the request (image, settings or limits)",
    SpawnCause.AUTH: "the key, token or permission is wrong",
    SpawnCause.NO_MONEY: "the account has no money",
    SpawnCause.RATE_LIMITED: "the engine limits the rate of requests",
    SpawnCause.TRANSIENT: "the engine failed or cannot be reached (network)",
    SpawnCause.AMBIGUOUS: "the engine did not say whether it started the worker",
    SpawnCause.BOOT_CRASH: "the worker ended before it was ready",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStep:
    """One step of a check: how long it took, and what was found or why it failed."""

    step: str
    ok: bool
    took: timedelta
    detail: str
    host: str | None = None  #: the host that the step was about, if the engine has several


class CheckStepFailed(Exception):
    """A step of a check failed; the message says why."""


class StepRunner:
    """Runs the steps of a check, and passes the result of each step to ``on_step``. ``host``: the host that is checked."""

    def __init__(self, clock: Clock, on_step: Callable[[CheckStep], None], host: str | None = None) -> None:
        self._clock, self._on_step, self._host = clock, on_step, host

    def at(self, host: str | None) -> "StepRunner":
        """Return a step runner whose results name this host."""
        return StepRunner(self._clock, self._on_step, host)

    async def run(self, name: str, work: Callable[[], Awaitable[tuple[T, str]]]) -> T:
        """Run one step and report it. ``work`` returns a result and a text for the report. Raises CheckStepFailed."""
        began = self._clock.elapsed()
        try:
            result, detail = await work()
        except (DrumbeatError, CheckStepFailed) as exc:
            self.report(name, began, reason_of(exc), ok=False)
            raise CheckStepFailed(str(exc)) from exc
        self.report(name, began, detail, ok=True)
        return result

    def report(self, name: str, began: timedelta, detail: str, *, ok: bool) -> None:
        """Report a step that is over. ``began``: when it began, by ``clock.elapsed()``."""
        took = self._clock.elapsed() - began
        self._on_step(CheckStep(step=name, ok=ok, took=took, detail=" ".join(detail.split()), host=self._host))


def reason_of(error: Exception) -> str:
    """Return why a step failed. For an engine's error, the text begins with its cause, such as ``the engine is full``."""
    if isinstance(error, MissingExtra):
        return f"an extra is missing here: {error}"
    if isinstance(error, SpawnError):
        return f"{_CAUSES[error.cause]}: {error}"
    return str(error)
