"""Of several people who change one template, each but the first is told, however long saving takes."""

from datetime import timedelta

import pytest

from drumbeat.bench.control.create import capacity
from drumbeat.bench.service import BenchService
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import StaleWrite
from drumbeat.core.run import Template
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.memory import MemoryStore

DOCUMENT = "name: kept\nload_mode: QPS\ntarget_qps: 250\n"


def service(store: MemoryStore, clock: ManualClock, owner: str) -> BenchService:
    return BenchService(store, clock, owner, capacity(4, 8 << 30), lambda engines: FakeSpawner(clock))


async def test_a_change_that_takes_long_to_save_replaces_no_change_that_was_made_meanwhile(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = service(store, clock, "slow"), service(store, clock, "quick")
    kept = await slow.add_template(DOCUMENT)
    seen, save = slow.revision(kept), store.templates.save

    async def save_late(template: Template, **more: object) -> Template:
        monkeypatch.undo()
        await clock.advance(timedelta(hours=1))
        await quick.change_template("kept", None, ["description=quick"], seen=seen)
        return await save(template, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(store.templates, "save", save_late)
    with pytest.raises(StaleWrite, match="changed by someone else"):
        await slow.change_template("kept", None, ["description=slow"], seen=seen)

    assert (await store.templates.get("kept")).description == "quick"
