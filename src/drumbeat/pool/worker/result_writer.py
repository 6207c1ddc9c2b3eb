"""Telling the store what became of jobs, however it takes it: late, twice, or not in this form."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import AttemptOutcome, Job, JobOutcome, Token
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.failures import shortened
from drumbeat.runtime.timeouts import describe

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What came of telling the store."""

    asked: int = 0  #: how many jobs were asked for in the end
    claimed: tuple[Job, ...] = ()
    refused: tuple[JobOutcome, ...] = ()  #: failures that were told instead of results the store would not have
    dropped: tuple[JobOutcome, ...] = ()  #: those that came too late: the job had been taken from this worker


class ResultWriter:
    """Settles in batches. An answer that was lost is made good for: what it gave us is asked for again."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self.is_unsure = False  #: a claim went unanswered: we may hold what we do not know of
        self._repeated: set[Token] = set()  #: verdicts that may have been heard already

    async def settle(self, verdicts: Sequence[JobOutcome], asked: int, *, alone: bool = False) -> WriteResult:
        """One transaction, as a rule; where that is refused nothing is claimed. Raises StoreUnavailable."""
        try:
            settled = await self._claims.settle(verdicts, asked, alone=alone)
        except StoreUnavailable:
            self.is_unsure = self.is_unsure or asked > 0
            self._repeated.update(verdict.token for verdict in verdicts)
            raise
        except Exception as exc:
            if not verdicts:
                raise
            log.warning("%d results were refused together, and are told one by one: %s", len(verdicts), describe(exc))
            told = WriteResult(refused=await self._one_by_one(verdicts))
        else:
            self._tell_stale(verdicts, settled.stale)
            told = WriteResult(asked=asked, claimed=tuple(settled.claimed), dropped=self._dropped(verdicts, settled.stale))
        self._repeated.difference_update(verdict.token for verdict in verdicts)
        return told

    async def _one_by_one(self, verdicts: Sequence[JobOutcome]) -> tuple[JobOutcome, ...]:
        """Tell each; which failures were told in place of results that were refused."""
        refused = []
        for verdict in verdicts:
            try:
                await self._tell(verdict)
            except StoreUnavailable:
                raise
            except Exception as exc:
                instead = _refused(verdict, exc)
                await self._tell_refusal(instead)
                refused += [instead] if verdict.outcome is AttemptOutcome.DONE else []
        return tuple(refused)

    async def _tell(self, verdict: JobOutcome) -> None:
        self._tell_stale([verdict], (await self._claims.settle([verdict], 0)).stale)

    async def _tell_refusal(self, verdict: JobOutcome) -> None:
        try:
            await self._tell(verdict)
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("what became of job %s cannot be told; it is anyone's once its lease runs out", verdict.token.job_id)

    def _dropped(self, verdicts: Sequence[JobOutcome], stale: Sequence[Token]) -> tuple[JobOutcome, ...]:
        gone = set(stale) - self._repeated
        return tuple(verdict for verdict in verdicts if verdict.token in gone)

    def _tell_stale(self, verdicts: Sequence[JobOutcome], stale: Sequence[Token]) -> None:
        """Tell of results that were dropped; what was only given back had none."""
        released = {verdict.token for verdict in verdicts if verdict.outcome is AttemptOutcome.RELEASED} if stale else set()
        for token in stale:
            if token in released:
                log.info("job %s had been taken from this worker before it was given back", token.job_id)
            elif token in self._repeated:
                log.info("the result of job %s had been heard before, or came too late", token.job_id)
            else:
                log.warning("the result of job %s came too late: it was taken from this worker; it is dropped", token.job_id)

    async def recall(self, adopt: Callable[[Job], None], knows: Callable[[Token], bool]) -> bool:
        """Take up what an unanswered claim has given us; whether the store answered this time."""
        try:
            held = await self._claims.held()
        except StoreUnavailable:
            return False
        except Exception:
            log.exception("what an unanswered claim has given us cannot be read; it is anyone's once its lease runs out")
            held = ()
        self.is_unsure = False
        for job in held:
            if not knows(job.token):
                adopt(job)
        return True


def _refused(verdict: JobOutcome, exc: Exception) -> JobOutcome:
    error = shortened(f"its result could not be kept: {describe(exc)}")
    return replace(verdict, outcome=AttemptOutcome.FAILED, result=None, error=error, retry_in=timedelta(), fatal=True)
