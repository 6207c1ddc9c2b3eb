"""Every operation is in exactly one sample, and every sample reaches the store once."""

import pytest

from drumbeat.runtime.probe import Reading
from drumbeat.runtime.sampling import Sampling
from runtime.given import FakeWorkload, World, seconds


async def test_a_sample_holds_what_was_counted_in_its_interval(world: World, workload: FakeWorkload) -> None:
    samples = Sampling(workload, world.clock)
    await world.passes(5)
    samples.begin()
    await world.passes(2)
    workload.count(10, errors=1)

    samples.take("WARMUP", 4, Reading(host_cpu_percent=50.0, host_memory_percent=20.0, gpu={"memory_percent": 1.0}), {"x": 1})

    sample = samples.newest
    assert sample is not None
    assert (sample.n, sample.interval, sample.operations, sample.errors) == (1, seconds(2), 10, 1)
    assert (sample.phase, sample.target, sample.extra) == ("WARMUP", 4, {"x": 1})
    assert (sample.cpu_percent, sample.memory_percent, sample.gpu) == (50.0, 20.0, {"memory_percent": 1.0})


async def test_samples_wait_in_order_and_age(world: World, workload: FakeWorkload) -> None:
    samples = Sampling(workload, world.clock)
    for _ in range(3):
        await world.passes(1)
        samples.take(None, 0, None)
    await world.passes(4)
    assert [(sample.n, sample.age) for sample in samples.waiting] == [(1, seconds(6)), (2, seconds(5)), (3, seconds(4))]


async def test_what_was_sent_waits_no_longer(world: World, workload: FakeWorkload) -> None:
    samples = Sampling(workload, world.clock)
    for _ in range(3):
        await world.passes(1)
        samples.take(None, 0, None)
    newest = samples.newest
    assert newest is not None
    samples.mark_sent([newest])
    assert [sample.n for sample in samples.waiting] == [1, 2]
    samples.mark_sent(samples.waiting)
    assert samples.newest is None


async def test_beyond_the_bound_the_oldest_is_dropped_and_that_is_said(
    world: World, workload: FakeWorkload, caplog: pytest.LogCaptureFixture
) -> None:
    samples = Sampling(workload, world.clock, max_pending=2)
    for _ in range(3):
        await world.passes(1)
        samples.take(None, 0, None)
    assert [sample.n for sample in samples.waiting] == [2, 3]
    assert "dropped sample 1 of this worker: " in caplog.text


async def test_an_empty_moment_is_no_sample(world: World, workload: FakeWorkload) -> None:
    samples = Sampling(workload, world.clock)
    samples.take(None, 0, None)
    assert samples.newest is None
    workload.count(1)
    samples.take(None, 0, None)
    assert samples.newest is not None
