"""A connection's slot: each operation is recorded once, by whoever takes it out."""

import pytest

from drumbeat.bench.driver.connection import ConnectionSlot, EngineState
from drumbeat.bench.driver.operation_source import OperationSource
from drumbeat.bench.driver.pacing import AT_ONCE, PacingGate
from drumbeat.bench.driver.recorder import RecorderSet
from drumbeat.bench.driver.records import FAILED, OK, TIMED_OUT
from drumbeat.bench.driver.session_kinds import OperationFailure, Values
from drumbeat.bench.model import Load, NewKey, Operation, Statement
from drumbeat.bench.values.draw import Draw

LOAD = Load(
    name="x",
    operations=(Operation(kind="INSERT", weight=100, statements=(Statement(sql="$1", values=(NewKey(first=1),)),)),),
)


class Scene:
    """A slot, and what came of its operations."""

    def __init__(self) -> None:
        self.failures: list[tuple[int, str, Values]] = []
        self.gate = PacingGate()
        self.gate.accept(True)
        source = OperationSource(LOAD, Draw.seeded(0, 1, lambda: 0), lambda us: us)
        self.shared = EngineState(
            self.gate, source, 0.0, lambda kind, failure, values: self.failures.append((kind, str(failure), values))
        )
        self.recorders = RecorderSet()
        self.slot = ConnectionSlot(5, self.shared, self.recorders.add())

    def outcomes(self) -> list[tuple[int, int]]:
        records = self.recorders.take()
        return list(zip(records["outcome"].tolist(), records["epoch"].tolist(), strict=True))


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_an_operation_belongs_to_the_epoch_it_began_in(scene: Scene) -> None:
    for end in ("well", "badly"):
        scene.shared.epoch = 1
        turn = scene.slot.begin(AT_ONCE)
        assert turn is not None
        scene.shared.epoch = 2
        if end == "well":
            scene.slot.succeeded(turn, 1)
        else:
            scene.slot.failed(turn, OperationFailure(FAILED, "x", "no"))

    assert scene.outcomes() == [(OK, 1), (FAILED, 1)]


async def test_what_was_given_up_is_not_recorded_again_and_nothing_more_is_begun(scene: Scene) -> None:
    turn = scene.slot.begin(AT_ONCE)
    assert turn is not None

    assert scene.slot.give_up(turn, scene.recorders.own, "too late")
    scene.slot.succeeded(turn, 1)
    scene.slot.failed(turn, OperationFailure(FAILED, "x", "no"))

    assert scene.outcomes() == [(TIMED_OUT, 0)]
    assert scene.failures == [(0, "too late", ((1,),))]
    assert (scene.slot.wanted, scene.slot.busy) == (False, False)


async def test_what_has_ended_cannot_be_given_up(scene: Scene) -> None:
    first = scene.slot.begin(AT_ONCE)
    assert first is not None
    scene.slot.succeeded(first, 1)
    second = scene.slot.begin(AT_ONCE)
    assert second is not None

    assert not scene.slot.give_up(first, scene.recorders.own, "too late")
    scene.slot.succeeded(second, 1)

    assert scene.outcomes() == [(OK, 0), (OK, 0)]


async def test_it_is_busy_until_it_has_recorded(scene: Scene) -> None:
    turn = scene.slot.begin(AT_ONCE)
    assert turn is not None
    seen = []
    add = scene.slot.recorder.add

    class Watching:
        def add(self, *fields: object) -> None:
            seen.append((scene.slot.busy, len(scene.slot.running)))
            add(*fields)  # type: ignore[arg-type]

    scene.slot.recorder = Watching()  # type: ignore[assignment]
    scene.slot.succeeded(turn, 1)

    assert seen == [(True, 0)]
    assert not scene.slot.busy


async def test_nothing_begins_behind_a_closed_gate_and_its_values_are_kept(scene: Scene) -> None:
    scene.gate.accept(False)
    assert scene.slot.begin(AT_ONCE) is None
    assert (scene.slot.busy, scene.slot.running) == (False, [])

    scene.gate.accept(True)
    turn = scene.slot.begin(AT_ONCE)

    assert turn is not None
    assert turn[1] == ((1,),)


async def test_a_failure_after_an_interrupt_is_a_timeout(scene: Scene) -> None:
    turn = scene.slot.begin(AT_ONCE)
    assert turn is not None
    scene.slot.expired = turn
    scene.slot.failed(turn, OperationFailure(FAILED, "x", "interrupted"))
    other = scene.slot.begin(AT_ONCE)
    assert other is not None
    scene.slot.failed(other, OperationFailure(FAILED, "x", "its own fault"))

    assert scene.outcomes() == [(TIMED_OUT, 0), (FAILED, 0)]
