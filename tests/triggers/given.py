"""What the triggers' tests begin with: triggers in a word, and a beat that only remembers."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drumbeat.triggers.model import Firing, Trigger, TriggerType

SECRET = "a-secret-of-some-length"


def trigger(name: str = "t", kind: str = "cron", **more: Any) -> Trigger:
    return Trigger(name=name, type=TriggerType(kind), **more)


@dataclass(slots=True)
class Beats:
    """Stands in for the beat: remembers what was asked, waits if told to, fails if told to."""

    asked: list[Firing] = field(default_factory=list)
    fails: list[Exception] = field(default_factory=list)
    holds: asyncio.Event | None = None
    running: int = 0
    most_at_once: int = 0

    async def __call__(self, firing: Firing) -> Mapping[str, Any]:
        self.asked.append(firing)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            if self.holds is not None:
                await self.holds.wait()
            if self.fails:
                raise self.fails.pop(0)
        finally:
            self.running -= 1
        return {firing.pool_id or "all": {"led": True, "ok": True}}

    @property
    def names(self) -> list[str]:
        return [firing.trigger for firing in self.asked]
