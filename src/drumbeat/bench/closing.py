"""Does the work after the end of a run, each part once: add database history, load recorded operations, explain the run."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from drumbeat.bench.explain.explaining import LanguageModel, explain_run
from drumbeat.bench.model import stored_explanation
from drumbeat.bench.results.conclusion import SKIPPED
from drumbeat.bench.results.enrichment import HISTORY_LIMIT
from drumbeat.bench.results.executions import load_executions
from drumbeat.bench.run_state import stored_target, whole_row
from drumbeat.bench.targets.urls import keeps_history
from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.run import Result, RunId
from drumbeat.runtime.lease import Leadership
from drumbeat.runtime.timeouts import pause
from drumbeat.store.interface import Store

HELD = timedelta(seconds=30)  #: how long a lease lasts: after this time another process takes over from a process that died
DONE = timedelta(days=1)  #: for this long, a part is known to be done
_POLLED_EVERY = timedelta(seconds=1)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClosing:
    """The work that follows the end of a run. Several processes can conduct a run; each part is done by one of them.

    A part has a lease of its own. A process that finds the lease held waits, and takes over if the holder dies. The lease of a
    part that is done lasts much longer: it says that nothing is left to do.
    """

    store: Store
    clock: Clock
    owner: str
    language_model: Callable[[], LanguageModel | None]
    enrich: Callable[[RunId, timedelta], Awaitable[Result]]

    async def close(self, run_id: RunId, hurry: asyncio.Event) -> None:
        """Do all parts of the work that the run's template and the settings ask for. If ``hurry`` is set, do not wait for
        other processes that do a part."""
        run = await self.store.runs.get(run_id)
        once = partial(self._once, f"complete/{run_id}", hurry)
        if keeps_history(stored_target(run).get("url")):
            await once("history", partial(self._read_history, run_id, hurry))
        if (run.config.get("recording") or {}).get("load_into_store"):
            await once(f"operations/{socket.gethostname()}", partial(self._load_recorded, run_id))  # loads this host's files
        model = None if hurry.is_set() else self._automatic_model(run_id)
        if model is not None:
            await once("explanation", partial(self._explain, run_id, model))

    async def _once(self, prefix: str, hurry: asyncio.Event, part: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do a part of the work, unless it is done; wait while another process does it. ``work`` must not raise."""
        turn = Leadership(self.store, f"{prefix}/{part}", self.owner, HELD, self.clock)
        try:
            if await self._wait_for(turn, hurry):
                async with turn.renewed():
                    await work()
                await self._mark_done(turn)
        except DrumbeatError as exc:
            log.warning("could not use the lease %s/%s: %s; another process may repeat this work", prefix, part, exc)
        finally:
            await turn.resign()

    async def _wait_for(self, turn: Leadership, hurry: asyncio.Event) -> bool:
        """Acquire the lease of a part. Returns False if the part is done, or if another process has it and ``hurry`` is set."""
        while await turn.hold() is None:
            _, free_in = await turn.held_by()
            if free_in > HELD or await pause(self.clock, _POLLED_EVERY, hurry):
                return False
        return True

    async def _mark_done(self, turn: Leadership) -> None:
        lease = await turn.hold()
        if lease is not None:
            await self.store.leases.renew(lease, DONE)
            turn.forget()

    async def _read_history(self, run_id: RunId, hurry: asyncio.Event) -> None:
        """Add what the database has recorded about a run's statements to the result of the ended run.

        The database records statements with a delay. Waits for late ones, unless ``hurry`` is set at the start."""
        limit = timedelta() if hurry.is_set() else HISTORY_LIMIT
        try:
            whole = whole_row(await self.store.results.list(run_id))
            if whole is not None and whole.enrichment_status == SKIPPED:
                await self.enrich(run_id, limit)
        except DrumbeatError as exc:
            log.warning("could not add the database's history to the result of run %s: %s; try: bench enrich", run_id, exc)

    async def _load_recorded(self, run_id: RunId) -> None:
        try:
            await load_executions(self.store, run_id)
        except DrumbeatError as exc:
            log.warning("could not load the recorded operations of run %s: %s; try: bench executions --load", run_id, exc)

    def _automatic_model(self, run_id: RunId) -> LanguageModel | None:
        """Return the language model if the settings say that it explains every ended run, else None. Errors are only logged."""
        try:
            model = self.language_model()
        except DrumbeatError as exc:
            log.warning("could not explain run %s: %s; try: bench explain", run_id, exc)
            return None
        return model if model is not None and model.settings.automatic else None

    async def _explain(self, run_id: RunId, model: LanguageModel) -> None:
        """Explain a run that has just ended. Errors are only logged."""
        try:
            if stored_explanation(await self.store.runs.get(run_id)) is None:
                await explain_run(self.store, model, run_id)
        except DrumbeatError as exc:
            log.warning("could not explain run %s: %s; try: bench explain", run_id, exc)
