"""Signals become an orderly stop, and nothing is left listening."""

import asyncio
import os
import signal

import pytest

from drumbeat.core import event
from drumbeat.core.worker import ExitCode, WorkerStatus
from drumbeat.runtime.signals import on_stop_signals, run_until_signalled
from runtime.given import FakeWorkload, World, seconds, settle


async def delivered(number: signal.Signals) -> None:
    """Send ourselves a signal, and wait until the loop has seen it."""
    os.kill(os.getpid(), number)
    await settle()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_first_signal_drains_and_a_second_ends_at_once(
    world: World, workload: FakeWorkload, number: signal.Signals
) -> None:
    workload.drain_takes = seconds(60)
    await world.tell(event.start(1))
    async with asyncio.TaskGroup() as group:
        living = group.create_task(run_until_signalled(world.life(workload)))
        await world.passes(1)
        await delivered(number)
        await world.passes(1)
        assert (await world.row()).status is WorkerStatus.DRAINING
        await delivered(number)
        await world.passes(0)
        assert living.done()
    assert living.result() is ExitCode.CLEAN


async def test_outside_the_block_signals_are_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    got: list[str] = []
    with on_stop_signals(got.append):
        await delivered(signal.SIGTERM)
    assert got == ["SIGTERM"]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_handler_of_the_program_that_we_run_in_is_back_after_the_block(number: signal.Signals) -> None:
    got: list[str] = []
    before = signal.signal(number, lambda *_: got.append("the program's own"))
    try:
        with on_stop_signals(got.append):
            await delivered(number)
        await delivered(number)
    finally:
        signal.signal(number, before)

    assert got == [number.name, "the program's own"]
