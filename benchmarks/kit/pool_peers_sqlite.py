"""SQLite queues to compare with: Huey with and without fsync, litequeue, persist-queue. The URL is a folder."""

from importlib import import_module
from pathlib import Path
from typing import Any

from kit.pool_course import Course, NoBatches, Tally, main, noop


class Huey:
    """Huey's consumer with threads in this process. A job is deleted when a worker takes it: lost if the worker dies."""

    def __init__(self, *, fsync: bool) -> None:
        self._fsync = fsync

    async def open(self, course: Course) -> None:
        huey = import_module("huey")
        self._huey: Any = huey.SqliteHuey("bench", filename=f"{course.url}/huey.db", fsync=self._fsync)
        self._task = self._huey.task()(noop)

    async def push_one(self, n: int) -> None:
        self._task(n)

    async def push_many(self, first: int, count: int) -> None:
        raise NoBatches

    async def work(self, course: Course, tally: Tally) -> None:
        settings = {"workers": int(course.setting), "periodic": False, "initial_delay": 0.001, "check_worker_health": False}
        self._huey.create_consumer(**settings).start()
        await tally.wait()


class Litequeue:
    """A loop of pop and done, with litequeue's default settings: WAL, synchronous NORMAL."""

    async def open(self, course: Course) -> None:
        self._queue: Any = import_module("litequeue").LiteQueue(f"{course.url}/litequeue.db")

    async def push_one(self, n: int) -> None:
        self._queue.put(str(n))

    async def push_many(self, first: int, count: int) -> None:
        raise NoBatches

    async def work(self, course: Course, tally: Tally) -> None:
        for _ in range(course.jobs):
            message = self._queue.pop()
            tally.one()
            self._queue.done(message.message_id)


class PersistQueue:
    """A loop of get and ack on persist-queue's SQLiteAckQueue."""

    async def open(self, course: Course) -> None:
        folder = Path(course.url) / "persist"
        self._queue: Any = import_module("persistqueue").SQLiteAckQueue(str(folder), auto_commit=True, multithreading=False)

    async def push_one(self, n: int) -> None:
        self._queue.put(n)

    async def push_many(self, first: int, count: int) -> None:
        raise NoBatches

    async def work(self, course: Course, tally: Tally) -> None:
        for _ in range(course.jobs):
            item = self._queue.get()
            tally.one()
            self._queue.ack(item)


if __name__ == "__main__":
    main(
        {
            "huey": lambda: Huey(fsync=True),
            "huey, no fsync": lambda: Huey(fsync=False),
            "litequeue": Litequeue,
            "persist-queue": PersistQueue,
        }
    )
