"""A task that a handler pushes goes to the store of the handler's job, unless the task names another store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import drumbeat
from drumbeat.client import BlockingConnection
from drumbeat.core.job import JobStatus
from drumbeat.settings import STORE_VARIABLE
from drumbeat.tasks.queue import queues
from tasks.conftest import address
from tasks.examples import add


@drumbeat.task
def push_child() -> None:
    add.push(1)


@drumbeat.task
async def push_child_in_loop() -> None:
    await add.apush(1)


@drumbeat.task
async def push_child_in_thread() -> None:
    await asyncio.to_thread(add.push, 1)


@drumbeat.task
def push_workflow() -> None:
    add.job(1).push()


@drumbeat.task
def push_elsewhere(store: str) -> None:
    add.with_options(store=store).push(1)


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def jobs(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockingConnection]:
    """A connection to a store that is not that of the settings."""
    monkeypatch.setenv(STORE_VARIABLE, settings_store(tmp_path))
    with drumbeat.connect_blocking(address(request, tmp_path)) as connection:
        yield connection
    queues.close()


def settings_store(folder: Path) -> str:
    return f"sqlite:///{folder}/settings.db"


def pushed(connection: BlockingConnection) -> list[str]:
    return sorted(job.type.rpartition(".")[2] for job in connection.pool("default").list())


@pytest.mark.parametrize("executor", ["async", "threads"])
@pytest.mark.parametrize("parent", [push_child, push_child_in_loop, push_child_in_thread, push_workflow])
def test_a_handler_pushes_to_the_store_of_its_job(
    jobs: BlockingConnection, tmp_path: Path, parent: drumbeat.Task[[], None], executor: str
) -> None:
    jobs.pool("default").push({}, type=parent.task_name)

    jobs.work("default", {parent.task_name: parent}, executor=executor)

    assert pushed(jobs) == ["add", parent.__name__]
    assert not (tmp_path / "settings.db").exists()


def test_a_task_with_a_store_of_its_own_is_pushed_there(jobs: BlockingConnection, tmp_path: Path) -> None:
    jobs.pool("default").push({"args": [settings_store(tmp_path)]}, type=push_elsewhere.task_name)

    jobs.work("default", {push_elsewhere.task_name: push_elsewhere})

    assert pushed(jobs) == ["push_elsewhere"]
    with drumbeat.connect_blocking(settings_store(tmp_path)) as other:
        assert pushed(other) == ["add"]


def test_outside_a_handler_the_store_is_that_of_the_settings(jobs: BlockingConnection, tmp_path: Path) -> None:
    jobs.pool("default").push({}, type=push_child.task_name)
    jobs.work("default", {push_child.task_name: push_child})

    assert add.push(1).status() is JobStatus.PENDING

    with drumbeat.connect_blocking(settings_store(tmp_path)) as other:
        assert pushed(other) == ["add"]
