"""Large payloads and results: stored outside the store, checked when read, deleted when no job needs them."""

import asyncio
import hashlib
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import LargeLost, LargeUnavailable, ResultExpired
from drumbeat.core.job import Job, JobId, JobStatus, NewJob
from drumbeat.core.note import Note
from drumbeat.core.pool import PoolId
from drumbeat.pool.envelope import open_envelope
from drumbeat.pool.large.files import FilePlace
from drumbeat.pool.large.place import StoredValue, ValueKey, check_key, parse_key
from drumbeat.pool.large.sweep import sweep
from drumbeat.pool.large.values import LargeValues
from drumbeat.pool.plugins import PoolPlugins
from drumbeat.pool.worker.context import JobContext
from drumbeat.store.memory import MemoryStore
from drumbeat.store.memory.notes import MemoryNotes
from drumbeat.testing import TestPool

BIG = {"text": "x" * 5000}
DAY = timedelta(days=1)


def files(place: Path) -> list[Path]:
    return sorted(place.rglob("*.json"))


def age(place: Path, clock: ManualClock, by: timedelta = 2 * DAY) -> None:
    """Make all files older, as the clock of the test sees them."""
    then = (clock.now() - by).timestamp()
    for path in files(place):
        os.utime(path, (then, then))


async def test_a_large_payload_goes_to_a_file_and_comes_back(pool: TestPool, place: Path) -> None:
    small, large = await pool.push({"n": 1}), await pool.push(BIG)

    assert (await pool.store.jobs.get(small)).payload == {"n": 1}
    assert len(str((await pool.store.jobs.get(large)).payload)) < 500
    assert (await pool.job(large)).payload == BIG
    assert [job.payload for job in await pool.list()] == [{"n": 1}, BIG]
    (file,) = files(place)
    assert file.stat().st_mode & 0o077 == 0


async def test_all_folders_of_large_values_are_for_this_user_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    place = FilePlace(tmp_path / "there" / "new" / "values")

    await place.write("s/n-papers/n-j1/payload-1.json", b"secret")

    folders = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()}
    assert folders.pop("there") == 0o755
    made = [
        "there/new",
        "there/new/values",
        "there/new/values/s",
        "there/new/values/s/n-papers",
        "there/new/values/s/n-papers/n-j1",
    ]
    assert folders == dict.fromkeys(made, 0o700)


async def test_a_large_result_goes_to_a_file_and_comes_back(pool: TestPool, place: Path) -> None:
    job_id = await pool.push(BIG)
    await pool.run_until_empty(lambda payload: {"got": payload})

    assert await pool.result(job_id) == {"got": BIG}
    assert (await pool.job(job_id)).result == {"got": BIG}
    assert open_envelope((await pool.store.jobs.get(job_id)).result).large is not None
    assert len(files(place)) == 2


async def test_a_job_claimed_by_hand_has_its_large_payload_and_result(pool: TestPool) -> None:
    await pool.push_many([BIG, BIG], type="big")
    job = await pool.claim()
    assert job is not None
    await pool.complete(job, BIG)

    assert job.payload == BIG
    assert job.type == "big"
    assert await pool.result(job.job_id) == BIG


async def test_a_payload_of_more_than_a_megabyte_can_be_pushed(pool: TestPool) -> None:
    found: list[int] = []
    await pool.push("x" * 3_000_000)
    await pool.run_until_empty(lambda payload: found.append(len(payload)))

    assert found == [3_000_000]


async def test_the_checksum_of_a_long_value_is_computed_outside_the_event_loop(
    pool: TestPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    sha256 = hashlib.sha256

    def noted(data: bytes) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return sha256(data)

    monkeypatch.setattr(hashlib, "sha256", noted)
    for size in (5000, 3_000_000):
        job_id = await pool.push("x" * size)
        assert (await pool.job(job_id)).payload == "x" * size

    assert threads == [True, True, False, False]


async def test_pushing_the_same_id_again_changes_nothing(pool: TestPool) -> None:
    for text in ("a", "b"):
        assert await pool.push({"text": text * 5000}, job_id="mine") == "mine"

    assert (await pool.job("mine")).payload == {"text": "a" * 5000}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file.unlink(), "has no file"),
        (lambda file: file.write_bytes(b"{}"), "the file was changed"),
        (lambda file: file.write_bytes(file.read_bytes().replace(b"x", b"y")), "the file was changed"),
        (lambda file: file.write_bytes(file.read_bytes() + b" "), "the file was changed"),
    ],
    ids=["deleted", "shorter", "other content", "longer"],
)
async def test_a_lost_payload_poisons_the_job_with_one_clear_line(
    pool: TestPool, place: Path, damage: Callable[[Path], Any], said: str
) -> None:
    job_id = await pool.push(BIG)
    damage(files(place)[0])
    (ran,) = await pool.run_until_empty(lambda payload: payload)

    job = await pool.job(job_id)
    assert job.status is JobStatus.POISONED
    assert ran.error is not None
    assert said in ran.error
    assert "\n" not in ran.error
    assert (await pool.explain(job_id)).status is JobStatus.POISONED


async def test_a_lost_result_is_an_error_of_one_line(pool: TestPool, place: Path) -> None:
    job_id = await pool.push(1)
    await pool.run_until_empty(lambda: BIG)
    files(place)[0].unlink()

    with pytest.raises(LargeLost, match="has no file"):
        await pool.result(job_id)
    assert (await pool.job(job_id)).status is JobStatus.DONE


async def test_a_job_claimed_by_hand_whose_payload_is_lost_is_poisoned(pool: TestPool, place: Path) -> None:
    job_id = await pool.push(BIG)
    files(place)[0].unlink()

    assert await pool.claim() is None
    assert (await pool.job(job_id)).status is JobStatus.POISONED


class Unreachable(FilePlace):
    """A place that does not answer for the first so many calls."""

    def __init__(self, root: Path, failures: int) -> None:
        super().__init__(root)
        self.failures = failures

    async def write(self, key: str, data: bytes) -> None:
        self._fail()
        await super().write(key, data)

    async def read(self, key: str, most: int) -> bytes:
        self._fail()
        return await super().read(key, most)

    def _fail(self) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise LargeUnavailable("no answer")


def on(place: FilePlace, clock: ManualClock) -> TestPool:
    store = MemoryStore(clock)
    return TestPool(
        store, clock, "papers", PoolPlugins(large=LargeValues(place=place, store=store, clock=clock, max_inline=1024))
    )


class HurriedClock(ManualClock):
    """A clock on which every sleep ends at once."""

    async def sleep(self, duration: timedelta) -> None:
        return


async def test_a_place_that_does_not_answer_for_a_moment_is_asked_again(place: Path) -> None:
    pool = on(Unreachable(place, 2), HurriedClock())

    job_id = await pool.push(BIG)

    assert (await pool.job(job_id)).payload == BIG


async def test_a_push_to_a_place_that_does_not_answer_fails_and_pushes_nothing(place: Path) -> None:
    pool = on(Unreachable(place, 100), HurriedClock())
    await pool.create()

    with pytest.raises(LargeUnavailable, match="no answer"):
        await pool.push_many([1, BIG])
    assert await pool.size() == 0


async def test_a_result_that_fits_is_kept_in_the_store_while_the_place_does_not_answer(place: Path) -> None:
    pool = on(Unreachable(place, 100), HurriedClock())
    job_id = await pool.push(1)
    await pool.run_until_empty(lambda: BIG)

    assert (await pool.store.jobs.get(job_id)).result == BIG


async def test_an_attempt_without_its_payload_is_retried(place: Path) -> None:
    silent = Unreachable(place, 0)
    pool = on(silent, HurriedClock())
    job_id = await pool.push(BIG, max_attempts=3)
    silent.failures = 4
    ran = await pool.run_until_empty(lambda payload: payload["text"][0])

    assert [each.error for each in ran] == ["no answer", None]
    assert await pool.result(job_id) == "x"


def standing(jobs: Sequence[Job]) -> list[tuple[Any, ...]]:
    """Whether each job can be claimed, and what has been counted against it."""
    return [(job.status, job.attempts, job.failures, job.crashes, job.suspicions) for job in jobs]


async def test_jobs_claimed_by_hand_while_a_payload_cannot_be_read_are_given_back(place: Path) -> None:
    silent = Unreachable(place, 0)
    pool = on(silent, HurriedClock())
    ids = await pool.push_many([1, BIG, 3])
    silent.failures = 100

    for limit in (3, 2):
        with pytest.raises(LargeUnavailable, match="no answer"):
            await pool.claim_many(limit)
        stored = [await pool.store.jobs.get(each) for each in ids]
        assert standing(stored) == [(JobStatus.PENDING, 0, 0, 0, 0)] * 3

    silent.failures = 0
    assert [job.payload for job in await pool.claim_many(3)] == [1, BIG, 3]


async def test_jobs_are_given_back_if_their_claim_is_cancelled_while_a_payload_is_read(place: Path) -> None:
    reading = asyncio.Event()

    class Slow(FilePlace):
        async def read(self, key: str, most: int) -> bytes:
            reading.set()
            await asyncio.Event().wait()
            return b""

    pool = on(Slow(place), HurriedClock())
    ids = await pool.push_many([1, BIG])
    async with asyncio.TaskGroup() as group:
        claim = group.create_task(pool.claim_many(2))
        await reading.wait()
        claim.cancel()

    assert claim.cancelled()
    assert standing([await pool.store.jobs.get(each) for each in ids]) == [(JobStatus.PENDING, 0, 0, 0, 0)] * 2


async def test_the_first_error_is_raised_if_claimed_jobs_cannot_be_released(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HurriedClock()
    store = MemoryStore(clock)

    class Gone(FilePlace):
        async def read(self, key: str, most: int) -> bytes:
            store.fail_next(1)
            raise LargeUnavailable("no answer")

    large = LargeValues(place=Gone(place), store=store, clock=clock, max_inline=1024)
    pool = TestPool(store, clock, "papers", PoolPlugins(large=large))
    await pool.push(BIG)

    with pytest.raises(LargeUnavailable, match="no answer"):
        await pool.claim()

    assert "failed to release 1 claimed jobs: " in caplog.text
    assert "they are retried when their leases run out" in caplog.text


async def test_a_process_without_the_setting_is_told_to_set_it(pool: TestPool, clock: ManualClock) -> None:
    job_id = await pool.push(BIG)
    without = TestPool(pool.store, clock, "papers")

    (ran, *_) = await without.run_until_empty(lambda payload: payload, most=3)

    assert ran.error is not None
    assert "expected the setting [pool] large" in ran.error
    assert (await without.job(job_id)).job_id == job_id


async def test_a_sweep_deletes_values_of_deleted_jobs_and_no_others(
    pool: TestPool, values: LargeValues, place: Path, clock: ManualClock
) -> None:
    kept = await pool.push(BIG)
    gone = await pool.push(BIG)
    await pool.cancel(gone)
    await clock.advance(timedelta(seconds=1))
    await pool.store.jobs.prune(timedelta(), [JobStatus.CANCELLED])
    age(place, clock)

    assert (await sweep(values, dry_run=True)).deleted == 1
    assert (await sweep(values)).deleted == 1
    assert (await pool.job(kept)).payload == BIG
    assert len(files(place)) == 1


async def test_a_sweep_leaves_young_values_alone(pool: TestPool, values: LargeValues, place: Path, clock: ManualClock) -> None:
    await values.store_jobs(PoolId("papers"), [NewJob(payload=BIG)])

    age(place, clock, timedelta(hours=23))
    assert (await sweep(values)).deleted == 0
    age(place, clock, timedelta(hours=25))
    assert (await sweep(values)).deleted == 1


async def test_a_sweep_leaves_the_values_of_another_store_alone(
    pool: TestPool, values: LargeValues, place: Path, clock: ManualClock
) -> None:
    await pool.push(BIG)
    age(place, clock)
    other = LargeValues(place=FilePlace(place), store=MemoryStore(clock), clock=clock, max_inline=1024)

    assert (await sweep(other)).deleted == 0
    assert len(files(place)) == 1


class SlowNotes(MemoryNotes):
    """Notes in memory whose readers all get their answer before one of them goes on, as in a store behind a network."""

    async def find(self, name: str) -> Note | None:
        found = await super().find(name)
        await asyncio.sleep(0)
        return found


async def test_processes_that_write_the_first_large_values_give_the_store_one_id(place: Path, clock: ManualClock) -> None:
    store = MemoryStore(clock)
    store.notes = SlowNotes(store.notes.state)
    processes = [LargeValues(place=FilePlace(place), store=store, clock=clock, max_inline=1024) for _ in range(3)]
    jobs = [NewJob(payload=BIG)] * 4

    await asyncio.gather(*[values.store_jobs(PoolId("papers"), jobs) for values in processes])

    assert len(files(place)) == 12
    assert {path.relative_to(place).parts[0] for path in files(place)} == {await processes[0].store_id()}
    age(place, clock)
    assert (await sweep(processes[1])).deleted == 12


def of_store(store: MemoryStore, place: Path, clock: ManualClock) -> LargeValues:
    return LargeValues(place=FilePlace(place), store=store, clock=clock, max_inline=1024)


async def test_a_pool_named_large_has_its_controller(place: Path, clock: ManualClock) -> None:
    """Leases without a slash belong to the controllers of pools."""
    store = MemoryStore(clock)
    controller = await store.leases.acquire("large", "vm.example.org-27146-c3464f24", DAY)
    values = of_store(store, place, clock)

    await values.store_jobs(PoolId("papers"), [NewJob(payload=BIG)])
    assert controller is not None
    await store.leases.release(controller)

    assert re.fullmatch("[0-9a-f]{32}", await values.store_id())
    assert await store.leases.acquire("large", "another controller", DAY)


async def test_an_id_in_the_lease_of_an_earlier_version_stays_the_stores_id(place: Path, clock: ManualClock) -> None:
    store = MemoryStore(clock)
    await store.leases.acquire("large", "0123456789abcdef" * 2, DAY)

    assert await of_store(store, place, clock).store_id() == "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("stored", "stays"), [("vm-27146-c3464f24", True), ("vm.example.org-27146-c3464f24", False), ("0123abcd" * 4, True)]
)
async def test_an_id_that_no_value_can_be_written_under_is_made_again(
    place: Path, clock: ManualClock, stored: str, stays: bool
) -> None:
    store = MemoryStore(clock)
    await store.notes.put("large", {"id": stored})
    processes = [of_store(store, place, clock) for _ in range(3)]

    await asyncio.gather(*[values.store_jobs(PoolId("papers"), [NewJob(payload=BIG)]) for values in processes])

    [store_id] = {await values.store_id() for values in processes}
    assert (store_id == stored) is stays
    assert {path.relative_to(place).parts[0] for path in files(place)} == {store_id}


async def test_a_sweep_stops_in_time_and_goes_on_later(
    pool: TestPool, values: LargeValues, place: Path, clock: ManualClock
) -> None:
    for _ in range(3):
        await values.store_jobs(PoolId("papers"), [NewJob(payload=BIG)])
    age(place, clock)

    counts = [(await sweep(values, within=timedelta())).deleted for _ in range(4)]

    assert counts == [1, 1, 1, 0]


class SlowToList(FilePlace):
    """A folder that takes two seconds to list."""

    def __init__(self, root: Path, clock: ManualClock) -> None:
        super().__init__(root)
        self.clock = clock

    async def list(self, prefix: str, after: str) -> AsyncIterator[StoredValue]:
        self.clock.jump(timedelta(seconds=2))
        async for value in super().list(prefix, after):
            yield value


async def test_a_sweep_of_a_place_that_is_slow_to_list_checks_more_than_one_value(
    values: LargeValues, place: Path, clock: ManualClock
) -> None:
    await values.store_jobs(PoolId("papers"), [NewJob(payload=BIG)] * 3)
    age(place, clock)

    assert (await sweep(replace(values, place=SlowToList(place, clock)), within=timedelta(seconds=1))).deleted == 3


async def test_a_folder_lists_its_values_in_the_order_of_their_keys_and_opens_no_folder_twice(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, opened = FilePlace(place), list[Path]()
    names = ["n-a/n-1", "n-a-b/n-1", "n-a_b/n-1", "n-a/n-1-2", "n-a/n-10", "x-aa/c-bb/n-1", "n-B/n-1"]
    keys = sorted(f"s/{name}/{value}.json" for name in names for value in ("payload-1", "result-1"))
    for key in keys:
        await folder.write(key, b"1")
    (place / "s" / "notes.txt").write_text("not a value")
    scandir = os.scandir

    def noted(path: Path) -> Any:
        opened.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)

    assert [value.key async for value in folder.list("s/", "")] == keys
    assert len(opened) == len(set(opened))
    for number, key in enumerate(keys):
        assert [value.key async for value in folder.list("s/", key)] == keys[number + 1 :]
    opened.clear()
    assert [value.key async for value in folder.list("s/", keys[-1])] == []
    assert opened == [place / "s", *(place / parent for parent in reversed(Path(keys[-1]).parents[:-2]))]
    assert [value.key async for value in folder.list("other/", "")] == []


async def test_a_result_of_an_earlier_attempt_is_swept(
    pool: TestPool, values: LargeValues, place: Path, clock: ManualClock
) -> None:
    await pool.push(1)
    job = await pool.claim()
    assert job is not None
    await values.store_result(job, BIG)
    await pool.complete(job, BIG)
    age(place, clock)

    assert (await sweep(values)).deleted == 1
    assert await pool.result(job.job_id) == BIG


async def test_deleting_a_pool_deletes_its_values(pool: TestPool, place: Path) -> None:
    await pool.push(BIG)
    await pool.delete(unfinished=True)

    assert files(place) == []


async def test_a_result_expires_and_its_file_is_swept(
    pool: TestPool, values: LargeValues, place: Path, clock: ManualClock
) -> None:
    await pool.update(result_ttl=timedelta(hours=1))
    large, small = await pool.push(1), await pool.push(2)
    await pool.run_until_empty(lambda payload: BIG if payload == 1 else payload)
    await clock.advance(timedelta(minutes=59))
    assert await pool.result(large) == BIG
    await clock.advance(timedelta(minutes=1))

    for job_id in (large, small):
        with pytest.raises(ResultExpired, match=f"the result of job {job_id} has expired"):
            await pool.result(job_id)
        assert (await pool.job(job_id)).result is None
        assert "its result has expired" in str(await pool.explain(job_id))
    assert [job.result for job in await pool.list()] == [None, None]
    age(place, clock)
    assert (await sweep(values)).deleted == 1


async def test_a_workflow_shows_no_expired_results_but_a_child_gets_them(pool: TestPool, clock: ManualClock) -> None:
    async def total(context: JobContext) -> int:
        return sum((await context.parents())[0].result)

    other = TestPool(pool.store, clock, "other")
    await pool.update(result_ttl=timedelta(hours=1))
    parent = await pool.push(1, workflow_id="flow")
    await other.push(2, job_id="child", after=[parent], workflow_id="flow")
    await pool.run_until_empty(lambda: [1, 2])
    assert [job.result for job in await other.parents("child")] == [[1, 2]]
    await clock.advance(timedelta(hours=1))

    await other.run_until_empty(total)

    assert [job.result for job in await pool.workflow_jobs("flow")] == [None, 3]
    assert [job.result for job in await other.parents("child")] == [None]
    assert [job.result for job in await pool.children(parent)] == [3]


async def test_a_sweep_keeps_an_expired_result_that_a_child_still_needs(
    pool: TestPool, values: LargeValues, place: Path, clock: ManualClock
) -> None:
    async def total(context: JobContext) -> int:
        return len((await context.parents())[0].result["text"])

    await pool.update(result_ttl=timedelta(hours=1))
    parents = [await pool.push(1, type="soon"), await pool.push(2, type="late")]
    child = await pool.push(3, type="total", after=parents)
    await pool.run_until_empty({"soon": lambda: BIG})
    await clock.advance(2 * DAY)
    age(place, clock)

    assert (await sweep(values)).deleted == 0
    await pool.run_until_empty({"late": lambda: 1, "total": total})
    assert await pool.result(child) == 5000
    assert (await sweep(values)).deleted == 1


async def test_a_sweep_keeps_an_expired_result_that_a_poisoned_child_needs_once_it_is_requeued(
    pool: TestPool, values: LargeValues, place: Path, clock: ManualClock
) -> None:
    found: list[int] = []

    async def total(context: JobContext) -> int:
        size = len((await context.parents())[0].result["text"])
        found.append(size)
        if len(found) == 1:
            raise ValueError("the first time")
        return size

    await pool.update(result_ttl=timedelta(hours=1))
    parent = await pool.push(1, type="big")
    child = await pool.push(2, type="total", after=[parent], max_attempts=1)
    handlers: dict[str, Any] = {"big": lambda: BIG, "total": total}
    await pool.run_until_empty(handlers)
    await clock.advance(2 * DAY)
    age(place, clock)

    assert (await sweep(values)).deleted == 0
    await pool.requeue(child)
    await pool.run_until_empty(handlers)
    assert found == [5000, 5000]
    assert (await sweep(values)).deleted == 1


@pytest.mark.parametrize("job_id", ["j000000000001", "..", "a/b", "é" * 300, "x" * 500, "a b", "-"])
def test_a_key_names_its_pool_and_job_in_safe_characters(job_id: str) -> None:
    key = ValueKey(store_id="s", pool_id=PoolId(f"p{job_id}"), job_id=JobId(job_id), name="payload-1")

    assert parse_key(check_key(str(key))) == key
    assert all(len(part) < 255 for part in str(key).split("/"))


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "a/../b.json", "a", "a/b", "s/n-p/n-j/other.json"])
async def test_a_key_that_drumbeat_did_not_write_reads_no_file(values: LargeValues, key: str) -> None:
    assert parse_key(key) is None
    with pytest.raises((LargeLost, LargeUnavailable)):
        await values.place.read(key, 100)


async def test_a_list_shows_a_value_of_more_than_a_megabyte_as_a_reference(pool: TestPool) -> None:
    job_id = await pool.push("x" * 2_000_000)

    (listed,) = await pool.list()

    assert open_envelope(listed.payload).large is not None
    assert (await pool.job(job_id)).payload == "x" * 2_000_000


async def test_a_sweep_deletes_what_an_interrupted_write_left(
    pool: TestPool, values: LargeValues, place: Path, clock: ManualClock
) -> None:
    job_id = await pool.push(BIG)
    whole = files(place)[0]
    whole.with_name(f"{whole.stem}-part.json").write_text("half")
    age(place, clock)

    assert (await sweep(values)).deleted == 1
    assert (await pool.job(job_id)).payload == BIG
