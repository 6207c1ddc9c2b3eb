"""FlatMachines' WorkBackend and WorkPool on Drumbeat's job queue, which refuses results of outdated claims."""

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from flatmachines import WorkItem

from drumbeat.adapters.flatmachines.lazy_store import LazyStore
from drumbeat.composition.plugins import TypeFilter, as_json, claimable_types
from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.job import NO_BACKOFF, AttemptOutcome, Job, JobId, JobOutcome, NewJob, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.model import paused_types
from drumbeat.store.interface import ClaimRequest, Store

log = logging.getLogger(__name__)

LEASE = timedelta(hours=1)  #: long, because FlatMachines' protocol does not renew claims
MOST = 1_000_000  #: ``size`` counts up to this many items


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineClaim:
    """A claim that this process made: the holder (worker), and the claimed job, whose token proves the claim."""

    holder: Holder
    job: Job  #: without its payload

    @property
    def token(self) -> Token:
        return self.job.token

    @property
    def worker_id(self) -> WorkerId:
        return self.holder.worker_id


class ClaimedId(str):
    """A job's id with its claim attached, so that an outdated claim is detected. It equals the plain id."""

    claim: MachineClaim

    def __new__(cls, claim: MachineClaim) -> "ClaimedId":
        claimed = super().__new__(cls, claim.token.job_id)
        claimed.claim = claim
        return claimed

    def __deepcopy__(self, memo: Any) -> "ClaimedId":
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle as the plain id, without the claim."""
        return str, (str(self),)


class ClaimTokens:
    """Remembers the claims made in this process, because FlatMachines' protocol passes only job ids."""

    def __init__(self) -> None:
        self._held: dict[tuple[JobId, WorkerId], MachineClaim] = {}
        self.made = 0  #: number of claims made so far

    def keep(self, claim: MachineClaim) -> None:
        """Remember a claim, as the newest claim of its job."""
        self.forget(claim)
        self._held[_key(claim)] = claim
        self.made += 1

    def forget(self, claim: MachineClaim) -> None:
        self._held.pop(_key(claim), None)

    def of_job(self, item_id: str) -> MachineClaim | None:
        """Return the claim attached to a ``ClaimedId`` or, for a plain ``str``, that job's newest claim; None if unknown."""
        if isinstance(item_id, ClaimedId):
            return item_id.claim
        return next((claim for claim in reversed(self._held.values()) if claim.token.job_id == item_id), None)

    def of_worker(self, worker_id: str) -> tuple[MachineClaim, ...]:
        """Return the claims of a worker. Reads a copy, because the heartbeat thread calls this too."""
        return tuple(claim for claim in list(self._held.values()) if claim.worker_id == worker_id)

    def workers(self) -> frozenset[WorkerId]:
        return frozenset(claim.worker_id for claim in self._held.values())


class DrumbeatWorkPool:
    """The items (jobs) of a named pool. ``complete``, ``fail``, ``release`` raise KeyError for an item not held here."""

    def __init__(self, backend: "DrumbeatWorkBackend", name: str) -> None:
        self.name = name
        self._backend = backend
        self._place = backend.place
        self._claims = backend.claims

    async def push(self, item: Any, options: dict[str, Any] | None = None) -> str:
        """Push an item and return its id. The item is poisoned after ``max_retries`` failures, or after that many lost workers.

        With the option ``item_id``, pushing the same id again adds nothing. Raises InvalidInput for an item that is not JSON.
        """
        given, plugins = options or {}, (await self._place.plane()).plugins
        retries, chosen = _max_retries(given), given.get("item_id")
        job = NewJob(
            payload=as_json(item, "item", plugins.most_bytes),
            job_id=None if chosen is None else JobId(str(chosen)),
            max_attempts=retries,
            max_crashes=retries,
            backoff=NO_BACKOFF,
        )
        store, pool_id = await self._store(), await self._place.pool(self.name)
        return (await plugins.push(pool_id, [job], partial(store.queue.push, pool_id)))[0]

    async def claim(self, worker_id: str) -> WorkItem | None:
        """Claim the next item for this worker; None if there is no item that it can claim. Results of jobs that the item waited
        for are filled in as arguments, if its payload refers to them.

        An item whose large payload is lost is poisoned. Raises LargeUnavailable if a large payload cannot be read now; then the
        item returns to the queue."""
        store, pool_id = await self._store(), await self._place.pool(self.name)
        holder = self._backend.holder(pool_id, worker_id)
        types = await self._claimable_types(store, pool_id)
        if types is None:
            return None
        claiming = ClaimRequest(pool_id=pool_id, holder=holder, lease=self._backend.lease, alone=True, **types._asdict())
        while claimed := await store.queue.claim(claiming):
            if opened := await self._opened(claimed, holder):
                return self._item(opened[0])
        return None

    async def _opened(self, claimed: Sequence[Job], holder: Holder) -> Sequence[Job]:
        """Return claimed jobs with their payloads as they were pushed, and with the results of their parents filled in. A job
        whose payload or such a result is lost is poisoned and left out."""
        store = await self._store()
        settle = partial(store.queue.settle, holder)

        async def poison(job: Job, error: str) -> None:
            await settle([JobOutcome(token=job.token, outcome=AttemptOutcome.FAILED, error=error, fatal=True)])

        return await (await self._place.plane()).plugins.opened_claims(claimed, poison, settle, store.jobs.parents)

    async def complete(self, item_id: str, result: Any | None = None) -> None:
        """Mark an item as done. Raises InvalidInput for a result that is not JSON; the item is then still claimed."""
        plugins, claim = (await self._place.plane()).plugins, self._claim_of(item_id)
        await self._settle(claim, AttemptOutcome.DONE, result=await plugins.sealed_result(claim.job, result))

    async def fail(self, item_id: str, error: str | None = None) -> None:
        await self._settle(self._claim_of(item_id), AttemptOutcome.FAILED, error=error or "failed without an error message")

    async def release(self, item_id: str) -> None:
        """Return an unfinished item to the queue; this does not count as an attempt."""
        await self._settle(self._claim_of(item_id), AttemptOutcome.RELEASED)

    async def size(self) -> int:
        """Count the items that can be claimed now: none if the pool is paused, and none of a paused type."""
        store, pool_id = await self._store(), await self._place.pool(self.name)
        types = await self._claimable_types(store, pool_id)
        if types is None:
            return 0
        if not types.without:
            return await store.jobs.size(pool_id, MOST)
        return min(sum((await store.jobs.by_type(pool_id, MOST, types.without)).values()), MOST)

    async def _claimable_types(self, store: Store, pool_id: PoolId) -> TypeFilter | None:
        """Return the types of the items to claim, without paused types; None if no item can be claimed."""
        row = await store.pools.find(pool_id)
        if row is None or (row.paused_until is not None and row.paused_until > await store.now()):
            return None
        return claimable_types((), paused_types(row.policy))

    async def release_by_worker(self, worker_id: str) -> int:
        """Return all items of a lost worker to their queues, also those of other pools. Returns how many.

        For each item the loss counts as a crash or, if the worker held several items, as a suspected crash; too many crashes
        poison an item. It does not count if the worker ended by itself or while it was leaving. Items that the worker claimed
        without registration are included.
        """
        store, pool_id = await self._store(), await self._place.pool(self.name)
        unregistered = Holder(pool_id=pool_id, worker_id=WorkerId(worker_id))
        holders, charge = {unregistered}, True
        with suppress(NotFound):
            row = await store.workers.get(pool_id, WorkerId(worker_id))
            holders, charge = {unregistered, row.holder}, row.is_live or row.has_crashed
        return await self._backend.release(holders, charge=charge)

    def _claim_of(self, item_id: str) -> MachineClaim:
        claim = self._claims.of_job(item_id)
        if claim is None:
            raise _refusal(
                f"this process has no claim on item {item_id} of pool {self.name}: never claimed, or outcome already reported"
            )
        return claim

    async def _settle(
        self, claim: MachineClaim, outcome: AttemptOutcome, *, result: Any = None, error: str | None = None
    ) -> None:
        job_outcome = JobOutcome(token=claim.token, outcome=outcome, result=result, error=error)
        settled = await (await self._store()).queue.settle(claim.holder, [job_outcome])
        self._claims.forget(claim)
        if settled.stale:
            job_id = claim.token.job_id
            raise _refusal(f"item {job_id} of pool {self.name} was taken from {claim.worker_id}; outcome {outcome} is refused")

    def _item(self, job: Job) -> WorkItem:
        if job.holder is None:
            raise ValueError(f"expected the store to return claimed job {job.job_id} with its holder, got no holder")
        claim = MachineClaim(holder=job.holder, job=replace(job, payload=None))
        self._claims.keep(claim)
        return WorkItem(
            id=ClaimedId(claim),
            data=job.payload,
            claimed_by=job.lease_owner,
            attempts=job.attempts,
            max_retries=job.max_attempts,
            status=job.status.value,
            created_at=_text(job.created_at),
            claimed_at=_text(job.claimed_at),
        )

    async def _store(self) -> Store:
        return await self._place.store()


class DrumbeatWorkBackend:
    """The pools of one store. ``close`` closes a store that was given as a URL; a store that was given open stays open."""

    def __init__(self, where: str | Store | LazyStore, *, lease: timedelta = LEASE) -> None:
        self.place = where if isinstance(where, LazyStore) else LazyStore(where)
        self.lease = lease  #: duration of future claims
        self._pools: dict[str, DrumbeatWorkPool] = {}
        self.claims = ClaimTokens()
        self._registered: dict[str, Holder] = {}

    def pool(self, name: str) -> DrumbeatWorkPool:
        if name not in self._pools:
            self._pools[name] = DrumbeatWorkPool(self, name)
        return self._pools[name]

    def register(self, holder: Holder) -> None:
        """Remember the identity of a registered worker, and use this identity for the worker's later claims, in every pool."""
        self._registered[holder.worker_id] = holder

    def holder(self, pool_id: PoolId, worker_id: str) -> Holder:
        """Return the identity with which a worker claims jobs: the identity that was registered for it or, without one, its id
        and this pool."""
        return self._registered.get(worker_id) or Holder(pool_id=pool_id, worker_id=WorkerId(worker_id))

    async def release(self, holders: Collection[Holder], *, charge: bool) -> int:
        """Return all items of these lost workers to their queues. Returns the number of items. ``charge``: whether the loss
        counts as a crash of each item, because the item may have caused it."""
        queue = (await self.place.store()).queue
        return sum([len(await queue.release(each, f"worker {each.worker_id} was lost", charge=charge)) for each in holders])

    def holders(self) -> frozenset[WorkerId]:
        return self.claims.workers()

    async def renew(self, worker_id: str, lease: timedelta | None = None) -> None:
        """Extend the leases of a worker's claims, and forget claims that it no longer holds."""
        claims = {claim.token: claim for claim in self.claims.of_worker(worker_id)}
        if not claims:
            return
        store = await self.place.store()
        stale: list[Token] = []
        for holder in {claim.holder for claim in claims.values()}:
            own = [token for token, claim in claims.items() if claim.holder == holder]
            stale += (await store.queue.renew(holder, own, lease or self.lease)).stale
        for token in stale:
            log.warning("worker %s no longer holds job %s; its result will be refused", worker_id, token.job_id)
            self.claims.forget(claims[token])

    async def settle_all(self, worker_id: str, outcome: AttemptOutcome, error: str | None) -> int:
        """Report the same outcome for all jobs that a worker has claimed. Returns how many reports the store accepted."""
        claims = self.claims.of_worker(worker_id)
        if not claims:
            return 0
        queue, stale = (await self.place.store()).queue, 0
        for claim in claims:
            job_outcome = JobOutcome(token=claim.token, outcome=outcome, error=error)
            stale += len((await queue.settle(claim.holder, [job_outcome])).stale)
            self.claims.forget(claim)
        return len(claims) - stale

    def clone(self) -> "DrumbeatWorkBackend":
        """Copy this backend for another thread: with separate connections and the same claims."""
        copy = DrumbeatWorkBackend(self.place.clone(), lease=self.lease)
        copy.claims, copy._registered = self.claims, self._registered
        return copy

    async def close(self) -> None:
        await self.place.close()

    async def __aenter__(self) -> "DrumbeatWorkBackend":
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self.close()


def _max_retries(options: dict[str, Any]) -> int:
    given = options.get("max_retries", 3)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise InvalidInput(f"expected max_retries to be a whole number of 1 or more, got {given!r}")
    return given


def _refusal(message: str) -> KeyError:
    log.warning("cannot record the outcome of an item: %s", message)
    return KeyError(message)


def _key(claim: MachineClaim) -> tuple[JobId, WorkerId]:
    return claim.token.job_id, claim.worker_id


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
