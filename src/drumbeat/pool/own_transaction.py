"""Pushes and completes jobs in the caller's own transaction. Used by pools, tasks and the context of a handler."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from drumbeat.core.errors import InvalidInput, StaleWrite, StoreUnavailable
from drumbeat.core.job import Job, JobId, NewJob, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder
from drumbeat.pool.envelope import seal
from drumbeat.pool.job_options import new_job, new_jobs
from drumbeat.pool.payload import as_json
from drumbeat.pool.plugins import PoolPlugins

if TYPE_CHECKING:
    from drumbeat.store.sql.own_transaction import OwnTransactions

A = TypeVar("A")
B = TypeVar("B")


class AwaitedConnection(Protocol):
    """A connection whose driver is asynchronous: its method ``execute`` must be awaited."""

    def execute(self, *given: Any, **named: Any) -> Awaitable[Any]: ...


class OwnTransactionMethods:
    """The methods of a pool that push and complete jobs in a transaction of the caller.

    On a blocking connection, no coroutine can run: async hooks of middleware are skipped, large values stay in the store.
    """

    def __init__(self, pool_id: PoolId, store_url: str | None, plugins: PoolPlugins) -> None:
        self.pool_id = pool_id
        self.most_bytes = plugins.most_bytes
        self._store_url = store_url
        self._plugins = plugins

    @overload
    def push_on(self, connection: AwaitedConnection, payload: Any, **options: Any) -> Awaitable[JobId]: ...

    @overload
    def push_on(self, connection: Any, payload: Any, **options: Any) -> JobId: ...

    def push_on(self, connection: Any, payload: Any, **options: Any) -> JobId | Awaitable[JobId]:
        """Push a job in the caller's open transaction, on a connection to the store's own database. The pool must exist.

        Await the result if the connection's driver is asynchronous. Raises InvalidInput for a connection that cannot be used.
        """
        jobs = [new_job(payload, self.most_bytes, **options)]
        return then(self.push_jobs_on(connection, jobs), itemgetter(0))

    @overload
    def push_many_on(
        self, connection: AwaitedConnection, payloads: Iterable[Any], **options: Any
    ) -> Awaitable[Sequence[JobId]]: ...

    @overload
    def push_many_on(self, connection: Any, payloads: Iterable[Any], **options: Any) -> Sequence[JobId]: ...

    def push_many_on(
        self, connection: Any, payloads: Iterable[Any], **options: Any
    ) -> Sequence[JobId] | Awaitable[Sequence[JobId]]:
        """Push many jobs with the same options in the caller's open transaction, like ``push_on``. Returns their ids."""
        return self.push_jobs_on(connection, new_jobs(payloads, self.most_bytes, **options), "push_many_on")

    def push_jobs_on(
        self, connection: Any, jobs: Sequence[NewJob], method: str = "push_on"
    ) -> Sequence[JobId] | Awaitable[Sequence[JobId]]:
        """Push jobs like ``push_on``; their options were checked. ``method`` is the name of the caller's method, for errors."""
        transactions = transactions_at(self._store_url, method)
        if transactions.is_awaited(connection):
            return self._plugins.push(
                self.pool_id, jobs, lambda sent: transactions.push_awaited(connection, self.pool_id, sent)
            )
        return self._plugins.push_blocking(
            self.pool_id, jobs, lambda sent: transactions.push_blocking(connection, self.pool_id, sent)
        )

    @overload
    def complete_on(self, connection: AwaitedConnection, job: Job, result: Any = None) -> Awaitable[None]: ...

    @overload
    def complete_on(self, connection: Any, job: Job, result: Any = None) -> None: ...

    def complete_on(self, connection: Any, job: Job, result: Any = None) -> Awaitable[None] | None:
        """Mark a claimed job as done in the caller's open transaction, on a connection to the store's own database.

        Until that transaction ends, the job is locked, so that no worker can claim it again. If it is rolled back, the job is
        still claimed. Await the result if the connection's driver is asynchronous.
        Raises StaleWrite if the job was taken back or claimed again; InvalidInput for a connection that cannot be used.
        """
        checked, holder = as_json(result, "result", self.most_bytes), job.holder
        if holder is None:
            raise stale_write(job.token)
        transactions = transactions_at(self._store_url, "complete_on")
        if self._plugins.large is not None and transactions.is_awaited(connection):
            return self._complete_large_on(transactions, connection, holder, job, checked)
        return complete_on(transactions, connection, holder, job.token, seal(as_json(checked, "result")))

    async def _complete_large_on(
        self, transactions: "OwnTransactions", connection: Any, holder: Holder, job: Job, result: Any
    ) -> None:
        """Complete a job on an asynchronous connection. A large result is first written to the storage of large values."""
        completion = complete_on(transactions, connection, holder, job.token, await self._plugins.sealed_result(job, result))
        if completion is not None:
            await completion


def transactions_at(store_url: str | None, method: str) -> "OwnTransactions":
    """Return the object that pushes and completes jobs on callers' connections. Raises InvalidInput if the store has none."""
    from drumbeat.store.open import own_transactions

    found = own_transactions(store_url) if store_url else None
    if found is None:
        instead = method.removesuffix("_on")
        raise InvalidInput(
            f"{method} needs a PostgreSQL or SQLite store; with this store use {instead}, which has its own transaction"
        )
    return found


def complete_on(
    transactions: "OwnTransactions", connection: Any, holder: Holder, token: Token, result: Any
) -> Awaitable[None] | None:
    """Mark a claimed job as done on the caller's connection. Raises StaleWrite if the claim is no longer valid."""

    def check(accepted: bool) -> None:
        if not accepted:
            raise stale_write(token)

    return then(transactions.complete(connection, holder, token, result), check)


def stale_write(token: Token) -> StaleWrite:
    return StaleWrite(f"job {token.job_id} is no longer held by claim {token.epoch}; discard its result and claim again")


def not_renewed(token: Token) -> StoreUnavailable:
    return StoreUnavailable(f"job {token.job_id} is locked by an open transaction, so its lease was not renewed; try again")


def then(outcome: "A | Awaitable[A]", convert: Callable[[A], B]) -> "B | Awaitable[B]":
    """Convert an outcome: at once or, if it is awaitable, after it was awaited."""
    if not inspect.isawaitable(outcome):
        return convert(outcome)

    async def converted() -> B:
        return convert(await outcome)

    return converted()
