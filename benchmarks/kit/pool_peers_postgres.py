"""PostgreSQL queues to compare with: PgQueuer, Procrastinate, with their default durability: committed to disk."""

from datetime import timedelta
from importlib import import_module
from typing import Any

from kit.pool_course import Course, Tally, main, noop


class PgQueuer:
    """PgQueuer's queue manager on one asyncpg connection and this event loop; the setting is its batch size."""

    async def open(self, course: Course) -> None:
        self._connection: Any = await import_module("asyncpg").connect(course.url)
        driver = import_module("pgqueuer.db").AsyncpgDriver(self._connection)
        self._queries = import_module("pgqueuer.queries").Queries(driver)
        if not await self._queries.schema_is_installed():
            await self._queries.install()
            await self._queries.optimize_autovacuum()

    async def push_one(self, n: int) -> None:
        await self._queries.enqueue("noop", str(n).encode())

    async def push_many(self, first: int, count: int) -> None:
        payloads = [str(n).encode() for n in range(first, first + count)]
        await self._queries.enqueue(["noop"] * count, payloads, [0] * count)

    async def work(self, course: Course, tally: Tally) -> None:
        manager = import_module("pgqueuer").PgQueuer.from_asyncpg_connection(self._connection)

        async def noop(job: Any) -> None:
            tally.one()

        manager.entrypoint("noop")(noop)
        drain = import_module("pgqueuer.types").QueueExecutionMode.drain
        await manager.run(batch_size=int(course.setting), mode=drain, dequeue_timeout=timedelta(seconds=1))


class Procrastinate:
    """Procrastinate's worker on this event loop; the setting is its concurrency."""

    async def open(self, course: Course) -> None:
        procrastinate = import_module("procrastinate")
        connector = procrastinate.PsycopgConnector(conninfo=course.url, min_size=2, max_size=20)
        self._app: Any = procrastinate.App(connector=connector)
        self._task = self._app.task(name="noop")(noop_async)
        await self._app.open_async()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()

    async def push_one(self, n: int) -> None:
        await self._task.defer_async(n=n)

    async def push_many(self, first: int, count: int) -> None:
        await self._task.batch_defer_async(*({"n": n} for n in range(first, first + count)))

    async def work(self, course: Course, tally: Tally) -> None:
        await self._app.run_worker_async(
            wait=False, concurrency=int(course.setting), install_signal_handlers=False, delete_jobs="always"
        )


async def noop_async(n: int) -> None:
    noop(n)


if __name__ == "__main__":
    main({"pgqueuer": PgQueuer, "procrastinate": Procrastinate})
