"""Redis queues to compare with: Huey, Dramatiq, RQ, SAQ, arq, Celery. Each has its own database on one server."""

import asyncio
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from kit.pool_course import SHARED, TALLY, Course, NoBatches, Peer, Tally, main, noop, shared_noop


class Huey:
    """Huey's consumer with threads in this process. A job is deleted when a worker takes it."""

    async def open(self, course: Course) -> None:
        self._huey: Any = import_module("huey").RedisHuey("bench", url=course.url)
        self._task = self._huey.task()(noop)

    async def push_one(self, n: int) -> None:
        self._task(n)

    async def push_many(self, first: int, count: int) -> None:
        raise NoBatches

    async def work(self, course: Course, tally: Tally) -> None:
        settings = {"workers": int(course.setting), "periodic": False, "initial_delay": 0.001, "check_worker_health": False}
        self._huey.create_consumer(**settings).start()
        await tally.wait()


class Dramatiq:
    """Dramatiq's worker with threads in this process."""

    async def open(self, course: Course) -> None:
        dramatiq = import_module("dramatiq")
        self._broker: Any = import_module("dramatiq.brokers.redis").RedisBroker(url=course.url, middleware=[])
        dramatiq.set_broker(self._broker)
        self._actor = dramatiq.actor(noop)

    async def push_one(self, n: int) -> None:
        self._actor.send(n)

    async def push_many(self, first: int, count: int) -> None:
        raise NoBatches

    async def work(self, course: Course, tally: Tally) -> None:
        import_module("dramatiq").Worker(self._broker, worker_threads=int(course.setting)).start()
        await tally.wait()


class Rq:
    """RQ: SimpleWorker runs jobs in this process; Worker, the usual choice, forks for each job."""

    async def open(self, course: Course) -> None:
        self._rq = import_module("rq")
        self._redis: Any = import_module("redis").Redis.from_url(course.url)
        self._queue = self._rq.Queue("bench", connection=self._redis)

    async def push_one(self, n: int) -> None:
        self._queue.enqueue(shared_noop, n, result_ttl=0)

    async def push_many(self, first: int, count: int) -> None:
        jobs = [self._rq.Queue.prepare_data(shared_noop, (n,), result_ttl=0) for n in range(first, first + count)]
        self._queue.enqueue_many(jobs)

    async def work(self, course: Course, tally: Tally) -> None:
        kind = getattr(self._rq, str(course.setting))
        kind([self._queue], connection=self._redis).work(burst=True, logging_level="ERROR", max_jobs=course.jobs)


async def _noop(context: Any, n: int = 0) -> None:
    TALLY.one()


class Saq:
    """SAQ's worker on this event loop."""

    async def open(self, course: Course) -> None:
        self._queue: Any = import_module("saq").Queue.from_url(course.url, name="bench")
        await self._queue.connect()

    async def push_one(self, n: int) -> None:
        await self._queue.enqueue("_noop", n=n)

    async def push_many(self, first: int, count: int) -> None:
        numbers = iter(range(first, first + count))
        await asyncio.gather(*(_share(numbers, self.push_one) for _ in range(20)))

    async def work(self, course: Course, tally: Tally) -> None:
        worker = import_module("saq").Worker
        await worker(self._queue, functions=[_noop], concurrency=int(course.setting), shutdown_grace_period_s=1).start()


class Arq:
    """arq's worker on this event loop, in burst mode."""

    async def open(self, course: Course) -> None:
        parts = urlsplit(course.url)
        self._place = import_module("arq.connections").RedisSettings(
            host=parts.hostname, port=parts.port, database=int(parts.path[1:])
        )
        self._pool = await import_module("arq").create_pool(self._place)

    async def push_one(self, n: int) -> None:
        await self._pool.enqueue_job("_noop", n)

    async def push_many(self, first: int, count: int) -> None:
        numbers = iter(range(first, first + count))
        await asyncio.gather(*(_share(numbers, self.push_one) for _ in range(20)))

    async def work(self, course: Course, tally: Tally) -> None:
        settings = {
            "burst": True,
            "max_jobs": int(course.setting),
            "poll_delay": 0.01,
            "keep_result": 0,
            "handle_signals": False,
        }
        worker = import_module("arq").Worker(functions=[_noop], redis_settings=self._place, **settings)
        await worker.main()


async def _share(numbers: Any, push: Any) -> None:
    """Push a share of the jobs; several such tasks run concurrently, for queues without a batch push."""
    for n in numbers:
        await push(n)


class Celery:
    """Celery's worker in this process, with the pool given by the setting: solo, threads 8, prefork 2."""

    async def open(self, course: Course) -> None:
        self._app: Any = import_module("celery").Celery("bench", broker=course.url)
        self._app.conf.update(
            task_ignore_result=True,
            worker_prefetch_multiplier=64,
            worker_hijack_root_logger=False,
            worker_redirect_stdouts=False,
            broker_connection_retry_on_startup=True,
        )
        self._task = self._app.task(name="noop")(shared_noop)

    async def push_one(self, n: int) -> None:
        self._task.delay(n)

    async def push_many(self, first: int, count: int) -> None:
        raise NoBatches

    async def work(self, course: Course, tally: Tally) -> None:
        pool, _, count = str(course.setting).partition(" ")
        options = {"pool": pool, "concurrency": int(count or 1), "loglevel": "ERROR", "quiet": True}
        worker = self._app.Worker(**options, without_gossip=True, without_mingle=True, without_heartbeat=True)
        worker.start()


if __name__ == "__main__":
    peers: dict[str, Callable[[], Peer]] = {
        "huey": Huey,
        "dramatiq": Dramatiq,
        "rq": Rq,
        "saq": Saq,
        "arq": Arq,
        "celery": Celery,
    }
    main(peers, SHARED if sys.argv[1] in ("celery", "rq") else TALLY)
