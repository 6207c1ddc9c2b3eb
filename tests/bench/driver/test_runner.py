"""What a runner counts, and from when: operations by the phase they began in, totals from the first entry to MEASUREMENT."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from drumbeat.bench.driver.records import Records, empty
from drumbeat.bench.driver.runner import MEASUREMENT, LoadRunner, Ramp
from drumbeat.bench.model import Load, Operation, Statement
from drumbeat.core.clock import ManualClock

LOAD = Load(name="x", operations=(Operation(kind="A", weight=100, statements=(Statement(sql="SELECT 1"),)),))
SECOND = timedelta(seconds=1)


@dataclass
class ScriptedEngine:
    """Records what the test says it does; an operation belongs to the epoch in which it began."""

    epoch: int = 0
    backlog: int = 0
    open_connections: int = 1
    ended: list[Records] = field(default_factory=list)

    def began(self, operations: int) -> Records:
        made = empty(operations)
        made["epoch"], made["duration"] = self.epoch, 1_000_000
        return made

    def works(self, operations: int) -> None:
        self.ended.append(self.began(operations))

    def take(self) -> Records:
        taken, self.ended = np.concatenate([empty(0), *self.ended]), []
        return taken

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def set_target(self, connections: int) -> None: ...

    def accept(self, accepting: bool) -> None: ...

    async def drain(self, within: timedelta) -> int:
        self.works(2)
        return 0


@dataclass
class Kept:
    """Executions that were handed over to be written, by whether they are warm-up."""

    rows: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})

    def keep(self, records: Records, *, warmup: bool) -> None:
        self.rows[warmup] += len(records)


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
def runner(engine: ScriptedEngine, clock: ManualClock) -> LoadRunner:
    scripted: Any = engine
    return LoadRunner(scripted, LOAD, clock)


@pytest.mark.parametrize("between", [[], ["WARMUP"]])
async def test_totals_begin_anew_at_the_first_entry_to_measurement(
    runner: LoadRunner, engine: ScriptedEngine, clock: ManualClock, between: list[str]
) -> None:
    runner.start(None, 1)
    engine.works(100)
    runner.tick()
    assert runner.measured.operations == 100, "no phase was named: everything counts"
    await clock.advance(5 * SECOND)
    late, engine.backlog = engine.began(10), 7
    for phase in between:
        runner.set_phase(phase)
        engine.works(50)
    engine.backlog = 0
    runner.set_phase(MEASUREMENT)
    assert (runner.measured.operations, runner.measured_seconds, runner.unsent) == (0, 0, 0)

    engine.ended.append(late)
    engine.works(3)
    await clock.advance(2 * SECOND)
    runner.tick()

    assert (runner.measured.operations, runner.measured_seconds) == (3, 2)
    assert runner.measured.response.count == 3


async def test_totals_go_on_when_measurement_is_entered_again(
    runner: LoadRunner, engine: ScriptedEngine, clock: ManualClock
) -> None:
    runner.start(MEASUREMENT, 1)
    for phase, operations in ((MEASUREMENT, 3), ("COOLDOWN", 100), (MEASUREMENT, 4)):
        runner.set_phase(phase)
        engine.works(operations)
        await clock.advance(SECOND)
        runner.tick()

    assert (runner.measured.operations, runner.measured_seconds) == (7, 2)


@pytest.mark.parametrize("changes", [253, 254, 255, 256, 511])
def test_measurement_is_counted_after_any_number_of_phases(runner: LoadRunner, engine: ScriptedEngine, changes: int) -> None:
    runner.start("PHASE 0", 1)
    for n in range(1, changes):
        runner.set_phase(f"PHASE {n}")
    engine.works(5)
    runner.set_phase(MEASUREMENT)
    engine.works(3)
    runner.tick()

    assert runner.measured.operations == 3


def test_an_operation_belongs_to_the_phase_it_began_in(runner: LoadRunner, engine: ScriptedEngine) -> None:
    runner.start("WARMUP", 1)
    of_warmup = engine.began(10)
    runner.set_phase(MEASUREMENT)
    of_measurement = engine.began(3)
    runner.set_phase("COOLDOWN")
    engine.ended += [of_warmup, of_measurement]
    runner.tick()

    assert runner.measured.operations == 3


def test_what_is_kept_says_whether_it_was_warmup(engine: ScriptedEngine, clock: ManualClock) -> None:
    scripted: Any = engine
    kept: Any = Kept()
    runner = LoadRunner(scripted, LOAD, clock, kept)
    for phase, operations in (("WARMUP", 5), (MEASUREMENT, 3)):
        runner.set_phase(phase)
        engine.works(operations)
        runner.tick()

    assert kept.rows == {True: 5, False: 3}


async def test_what_ends_while_draining_is_counted_apart(runner: LoadRunner, engine: ScriptedEngine) -> None:
    runner.start(MEASUREMENT, 1)
    engine.works(3)

    await runner.drain(SECOND)

    assert (runner.measured.operations, runner.drained.operations) == (5, 2)


@pytest.mark.parametrize(("passed", "connections"), [(0, 10), (2.5, 15), (5, 20), (10, 30), (11, 30)])
def test_a_ramp_goes_from_one_number_to_another_in_even_steps(passed: float, connections: int) -> None:
    ramp = Ramp(begin=10, end=30, began=7 * SECOND, lasts=10 * SECOND)

    assert ramp.at(7 * SECOND + passed * SECOND) == connections
