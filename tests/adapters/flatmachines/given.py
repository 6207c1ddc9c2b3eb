"""What the tests of machines share: hooks that echo, fail or wait, and machines run on an open store."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flatmachines import MachineHooks

from adapters.flatmachines.seed import CONFIG
from drumbeat.adapters.flatmachines import Launch, run_machine
from drumbeat.store.interface import Store

ECHO = {"echo": "adapters.flatmachines.given:EchoHooks"}
PROCESSOR = {"actual_job_processor": str(CONFIG / "echo_processor.yml")}


class EchoHooks(MachineHooks):  # type: ignore[misc]
    """Echoes a job; fails if the job says so; waits for ``gate`` if there is one."""

    gate: asyncio.Event | None = None
    reached: asyncio.Event | None = None

    async def on_action(self, state_name: str, action_name: str, context: dict[str, Any]) -> dict[str, Any]:
        if EchoHooks.reached is not None:
            EchoHooks.reached.set()
        if EchoHooks.gate is not None:
            await EchoHooks.gate.wait()
        if context["job"].get("fail"):
            raise RuntimeError(context["job"]["fail"])
        return context | {"echoed": context["job"]}


async def run(store: Store, file: Path, given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    wanted = Launch(config=file, given=given, hooks=ECHO, machines=PROCESSOR, **more)
    return await run_machine(wanted, where=store)


def seed_file(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.yml"
    file.write_text(text, encoding="utf-8")
    return file
