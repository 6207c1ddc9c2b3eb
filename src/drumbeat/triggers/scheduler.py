"""The built-in scheduler: cron triggers kept by a process that runs anyway."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from drumbeat.core.clock import Clock
from drumbeat.triggers.model import Run, Trigger, TriggerType
from drumbeat.triggers.schedule import next_after, parse_schedule, zone

log = logging.getLogger(__name__)

_LONGEST_SLEEP = timedelta(seconds=30)  #: so that a correction of the wall clock is noticed


def due_after(trigger: Trigger, moment: datetime) -> datetime:
    """When a cron trigger comes due next."""
    return next_after(parse_schedule(trigger.schedule or ""), moment, zone(trigger.timezone))


class Scheduler:
    """Fires cron triggers at their times until cancelled.

    Each trigger is on its own: a slow beat delays no other's. One that comes due while its last beat still runs is left out,
    and so are those missed while the process slept: the next beat sees what they would have seen.
    """

    def __init__(self, triggers: Sequence[Trigger], run: Run, clock: Clock) -> None:
        self._triggers = [trigger for trigger in triggers if trigger.type is TriggerType.CRON]
        self._run = run
        self._clock = clock

    async def keep(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for trigger in self._triggers:
                group.create_task(self._keep_one(trigger))

    async def _keep_one(self, trigger: Trigger) -> None:
        while True:
            due = due_after(trigger, self._clock.now())
            while (left := due - self._clock.now()) > timedelta():
                await self._clock.sleep(min(left, _LONGEST_SLEEP))
            await self._fire(trigger)

    async def _fire(self, trigger: Trigger) -> None:
        try:
            log.info("trigger %s: %s", trigger.name, await self._run(trigger.firing()))
        except Exception:
            log.exception("trigger %s failed; it is tried again when it comes due", trigger.name)
