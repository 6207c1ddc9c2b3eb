"""The same protocols on every store that outlives its process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from drumbeat.adapters.flatmachines import (
    DrumbeatRegistrationBackend,
    DrumbeatWorkBackend,
    PoolHooks,
    PoolWorkerFilter,
    PoolWorkerRegistration,
    open_session,
)
from drumbeat.adapters.flatmachines.lazy_store import LazyStore
from drumbeat.client import connect
from drumbeat.core.job import JobId, JobStatus
from drumbeat.pool.middleware import PushCall
from servers.redis import RedisServer, Unavailable


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.sqlite"
    elif request.param == "postgresql":
        new_database: Callable[[], str] = request.getfixturevalue("new_database")
        yield new_database()
    else:
        server = _redis()
        yield server.new_database()
        server.close()


def _redis() -> RedisServer:
    try:
        server = RedisServer()
        server.start()
    except Unavailable as exc:
        pytest.skip(f"Redis is not available: {exc}")
    return server


async def test_a_job_and_a_worker_from_first_to_last(url: str) -> None:
    async with DrumbeatWorkBackend(url) as work, DrumbeatRegistrationBackend(url, pool_id="papers") as registry:
        papers = work.pool("papers")
        ids = [await papers.push({"n": n}, {"max_retries": 1}) for n in range(3)]
        await registry.register(PoolWorkerRegistration(worker_id="w1", capabilities=["gpu"], pool_id="papers"))
        await registry.heartbeat("w1", {"seen": 1})
        first, second, third = [await papers.claim("w1") for _ in range(3)]
        assert [item.id for item in (first, second, third) if item] == ids
        assert await papers.size() == 0

        await papers.complete(ids[0], {"ok": True})
        await papers.fail(ids[1], "broken")
        record = await registry.get("w1")
        assert record is not None
        assert (record.current_task_id, record.metadata, record.capabilities) == (ids[2], {"seen": 1}, ["gpu"])
        await DrumbeatRegistrationBackend(await work.place.store()).update_status("w1", "lost")
        assert await papers.release_by_worker("w1") == 1
        with pytest.raises(KeyError):
            await papers.complete(ids[2])
        with pytest.raises(KeyError):
            await registry.heartbeat("w1")

        jobs = [await (await work.place.store()).jobs.get(JobId(each)) for each in ids]
        assert [job.status for job in jobs] == [JobStatus.DONE, JobStatus.POISONED, JobStatus.POISONED]
        assert (jobs[0].result, jobs[1].last_error) == ({"ok": True}, "broken")
        assert [each.status for each in await registry.list(PoolWorkerFilter(pool_id="papers", statuses=["lost"]))] == ["lost"]


async def test_the_hook_on_a_url(url: str) -> None:
    context: dict[str, Any] = {"pool_id": "papers", "worker_id": "w1", "result": 1}
    async with open_session(url) as session:
        hooks = PoolHooks(session)
        item_id = await session.backends().work.pool("papers").push("text")
        for action in (
            "register_worker",
            "get_pool_state",
            "claim_job",
            "complete_job",
            "list_stale_workers",
            "deregister_worker",
        ):
            context = await hooks.on_action("state", action, context)
        assert (context["queue_depth"], context["job_id"], context["stale_count"]) == (1, item_id, 0)


async def test_the_folders_of_a_new_sqlite_store_are_for_this_user_alone(tmp_path: Path) -> None:
    async with LazyStore(f"sqlite:///{tmp_path}/new/deep/drumbeat.db") as place:
        await place.store()

    assert [(tmp_path / each).stat().st_mode & 0o777 for each in ("new", "new/deep")] == [0o700, 0o700]


class TaggingMiddleware:
    """Adds a header to every pushed job."""

    def before_push(self, push: PushCall) -> None:
        for job in push.jobs:
            job.headers["from"] = "here"


tagging = TaggingMiddleware()


@pytest.mark.parametrize("variables", [{}, {"DRUMBEAT_MIDDLEWARE": f"{__name__}:tagging"}, {"DRUMBEAT_LARGE": "PLACE"}])
async def test_items_and_results_pass_through_the_plugins_of_the_settings(
    url: str, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("PLACE", f"file://{tmp_path}/large"))
    monkeypatch.setenv("DRUMBEAT_MAX_INLINE", "1KB")
    values: list[Any] = [{"n": 1}, {"$drumbeat": {"headers": {}}, "value": 1}, {"text": "x" * 5000}]
    async with DrumbeatWorkBackend(url) as work, connect(url) as db:
        papers = work.pool("papers")
        ids = [*[await papers.push(each) for each in values], *await db.pool("papers").push_many(values)]
        for pushed in [*values, *values]:
            item = await papers.claim("w1")
            assert item is not None
            assert item.data == pushed
            await papers.complete(item.id, item.data)

        assert [(await db.pool("papers").job(each)).payload for each in ids] == [*values, *values]
        assert [await db.pool("papers").result(each, 5) for each in ids] == [*values, *values]
    assert len([*tmp_path.glob("large/**/*.json")]) == (4 if "DRUMBEAT_LARGE" in variables else 0)


async def test_items_of_a_paused_type_or_pool_are_neither_claimed_nor_counted(url: str) -> None:
    async with DrumbeatWorkBackend(url) as work, connect(url) as db:
        pool, papers = db.pool("papers"), work.pool("papers")
        await pool.push("letter", type="mail")
        await pool.push("call", type="sms")

        await pool.pause(types=["mail"])
        assert await papers.size() == 1
        item = await papers.claim("w1")
        assert item is not None
        assert (item.data, await papers.size(), await papers.claim("w1")) == ("call", 0, None)

        await pool.resume(types=["mail"])
        await pool.pause()
        assert (await papers.size(), await papers.claim("w1")) == (0, None)

        await pool.resume()
        assert await papers.size() == 1
        assert await papers.claim("w1") is not None
