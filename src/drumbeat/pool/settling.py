"""Telling the store what became of jobs, however it takes it: late, twice, or not in this form."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from drumbeat.core.errors import DrumbeatError, StoreUnavailable
from drumbeat.core.job import Job, Outcome, Token, Verdict
from drumbeat.pool.claims import Claims
from drumbeat.pool.failures import shortened
from drumbeat.store.interface import Settled

log = logging.getLogger(__name__)


class Settling:
    """Settles in batches. An answer that was lost is made good for: what it gave us is asked for again."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self.is_unsure = False  #: a claim went unanswered: we may hold what we do not know of
        self._repeated: set[Token] = set()  #: verdicts that may have been heard already

    async def settle(self, verdicts: Sequence[Verdict], asked: int) -> Settled:
        """One transaction, as a rule. Raises StoreUnavailable."""
        try:
            settled = await self._claims.settle(verdicts, asked)
        except StoreUnavailable:
            self.is_unsure = self.is_unsure or asked > 0
            self._repeated.update(verdict.token for verdict in verdicts)
            raise
        except DrumbeatError as exc:
            if not verdicts:
                raise
            log.warning("%d results were refused together, and are told one by one: %s", len(verdicts), exc)
            settled = await self._one_by_one(verdicts)
        self._tell_stale(settled.stale)
        self._repeated.difference_update(verdict.token for verdict in verdicts)
        return settled

    async def _one_by_one(self, verdicts: Sequence[Verdict]) -> Settled:
        stale: list[Token] = []
        for verdict in verdicts:
            try:
                told = await self._claims.settle([verdict], 0)
            except StoreUnavailable:
                raise
            except DrumbeatError as exc:
                told = await self._claims.settle([_refused(verdict, exc)], 0)
            stale.extend(told.stale)
        return Settled(stale=tuple(stale))

    def _tell_stale(self, stale: Sequence[Token]) -> None:
        for token in stale:
            if token in self._repeated:
                log.info("the result of job %s had been heard before, or came too late", token.job_id)
            else:
                log.warning("the result of job %s came too late: it was taken from this worker; it is dropped", token.job_id)

    async def recall(self, adopt: Callable[[Job], None], knows: Callable[[Token], bool]) -> bool:
        """Take up what an unanswered claim has given us; whether the store answered this time."""
        try:
            held = await self._claims.held()
        except StoreUnavailable:
            return False
        self.is_unsure = False
        for job in held:
            if not knows(job.token):
                adopt(job)
        return True


def _refused(verdict: Verdict, exc: DrumbeatError) -> Verdict:
    error = shortened(f"its result could not be kept: {exc}")
    return replace(verdict, outcome=Outcome.FAILED, result=None, error=error, fatal=True)
