"""Writes the outcomes of jobs to the store. Handles lost answers of the store, repeated writes and refused results."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import AttemptOutcome, Job, JobOutcome, Token
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.failures import shortened
from drumbeat.runtime.timeouts import describe

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What the store did with the written outcomes, and the jobs claimed in the same call."""

    asked: int = 0  #: how many jobs this worker tried to claim
    claimed: tuple[Job, ...] = ()
    refused: tuple[JobOutcome, ...] = ()  #: failures, written in place of results that the store refused
    dropped: tuple[JobOutcome, ...] = ()  #: outcomes that came too late: the job had been taken from this worker


class ResultWriter:
    """Writes job outcomes and claims jobs in one call. If the answer is lost, ``recall`` reads which jobs the worker holds."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self.is_unsure = False  #: whether a claim got no answer, so that this worker might hold jobs it does not know of
        self._repeated: set[Token] = set()  #: outcomes that might have been written already

    async def settle(self, verdicts: Sequence[JobOutcome], asked: int, *, alone: bool = False) -> WriteResult:
        """Write outcomes and claim ``asked`` jobs in one transaction. If the store refuses that, write the outcomes one by
        one and claim no jobs. Raises StoreUnavailable."""
        try:
            settled = await self._claims.settle(verdicts, asked, alone=alone)
        except StoreUnavailable:
            self.is_unsure = self.is_unsure or asked > 0
            self._repeated.update(verdict.token for verdict in verdicts)
            raise
        except Exception as exc:
            if not verdicts:
                raise
            log.warning("the store refused %d results: %s; writing them one by one", len(verdicts), describe(exc))
            written = await self._one_by_one(verdicts)
        else:
            self._log_stale(verdicts, settled.stale)
            written = WriteResult(asked=asked, claimed=tuple(settled.claimed), dropped=self._dropped(verdicts, settled.stale))
        if self._repeated:
            self._repeated.difference_update(verdict.token for verdict in verdicts)
        return written

    async def _one_by_one(self, verdicts: Sequence[JobOutcome]) -> WriteResult:
        """Write outcomes one by one. If the store refuses a result, write a failure instead.

        Raises StoreUnavailable. The caller then writes all outcomes again; those already written are in ``_repeated``, so that
        the store's refusal of the second write does not count as a dropped outcome."""
        refused, dropped = [], []
        for verdict in verdicts:
            instead = None
            try:
                is_dropped = await self._write(verdict)
            except StoreUnavailable:
                raise
            except Exception as exc:
                instead = _refused(verdict, exc)
                is_dropped = await self._write_refusal(instead)
            if is_dropped:
                dropped.append(verdict)
            elif instead is not None and verdict.outcome is AttemptOutcome.DONE:
                refused.append(instead)
        return WriteResult(refused=tuple(refused), dropped=tuple(dropped))

    async def _write(self, verdict: JobOutcome) -> bool:
        """Write one outcome. Returns True if it is dropped, because the job had been taken from this worker."""
        try:
            stale = (await self._claims.settle([verdict], 0)).stale
        except StoreUnavailable:
            self._repeated.add(verdict.token)
            raise
        self._log_stale([verdict], stale)
        is_dropped = bool(self._dropped([verdict], stale))
        if not is_dropped:
            self._repeated.add(verdict.token)
        return is_dropped

    async def _write_refusal(self, verdict: JobOutcome) -> bool:
        """Write a failure in place of a refused result. Returns True if it is dropped, because the job had been taken away."""
        try:
            return await self._write(verdict)
        except StoreUnavailable:
            raise
        except Exception:
            log.exception("failed to record the outcome of job %s; it is retried when its lease runs out", verdict.token.job_id)
            return False

    def _dropped(self, verdicts: Sequence[JobOutcome], stale: Sequence[Token]) -> tuple[JobOutcome, ...]:
        gone = set(stale) - self._repeated
        return tuple(verdict for verdict in verdicts if verdict.token in gone) if gone else ()

    def _log_stale(self, verdicts: Sequence[JobOutcome], stale: Sequence[Token]) -> None:
        """Log the outcomes that the store refused: the job was taken from this worker, or the outcome was already written."""
        released = {verdict.token for verdict in verdicts if verdict.outcome is AttemptOutcome.RELEASED} if stale else set()
        for token in stale:
            if token in released:
                log.info("job %s was taken from this worker before the worker could release it", token.job_id)
            elif token in self._repeated:
                log.info(
                    "the second write of the result of job %s was refused: the first write arrived, or the job was taken over",
                    token.job_id,
                )
            else:
                log.warning(
                    "the result of job %s came too late and is dropped: the job was taken from this worker", token.job_id
                )

    async def recall(self, adopt: Callable[[Job], None], knows: Callable[[Token], bool]) -> bool:
        """Read from the store which jobs this worker holds. Calls ``adopt`` for each job for which ``knows`` returns False: the
        store's answer to the claim of that job was lost. Returns False if the store does not answer."""
        try:
            held = await self._claims.held()
        except StoreUnavailable:
            return False
        except Exception:
            log.exception(
                "failed to read the jobs of a claim that got no answer; these jobs are retried when their leases run out"
            )
            held = ()
        self.is_unsure = False
        for job in held:
            if not knows(job.token):
                adopt(job)
        return True


def _refused(verdict: JobOutcome, exc: Exception) -> JobOutcome:
    error = shortened(f"its result could not be stored: {describe(exc)}")
    return verdict._replace(outcome=AttemptOutcome.FAILED, result=None, error=error, retry_in=timedelta(), fatal=True)
