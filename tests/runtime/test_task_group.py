"""An error in a task group reaches the caller as it is."""

import asyncio

import pytest

from drumbeat.core.errors import Refused, first_error
from drumbeat.runtime.task_group import plain_task_group


async def fail(error: Exception) -> None:
    raise error


async def grouped(*errors: Exception, block: Exception | None = None) -> None:
    async with plain_task_group() as group:
        for error in errors:
            group.create_task(fail(error))
        if block is not None:
            raise block
        await asyncio.Event().wait()


async def test_the_error_of_a_task_and_that_of_the_block_are_raised_themselves() -> None:
    with pytest.raises(Refused, match="by the task"):
        await grouped(Refused("by the task"))
    with pytest.raises(Refused, match="by the block"):
        await grouped(block=Refused("by the block"))


async def test_of_several_errors_the_first_is_raised_and_none_is_lost() -> None:
    with pytest.raises(Refused, match="first") as caught:
        await grouped(Refused("first"), Refused("second"))

    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert [str(each) for each in caught.value.__cause__.exceptions] == ["first", "second"]


async def test_cancelling_it_cancels_its_tasks_and_is_no_error() -> None:
    begun = asyncio.Event()

    async def waiting() -> None:
        async with plain_task_group() as group:
            group.create_task(asyncio.Event().wait())
            begun.set()

    async with asyncio.TaskGroup() as outer:
        task = outer.create_task(waiting())
        await begun.wait()
        task.cancel()

    assert task.cancelled()


def test_a_group_in_a_group_is_looked_into() -> None:
    leaf = Refused("leaf")

    assert first_error(ExceptionGroup("outer", [ExceptionGroup("inner", [leaf]), ValueError()])) is leaf
    assert first_error(leaf) is leaf
