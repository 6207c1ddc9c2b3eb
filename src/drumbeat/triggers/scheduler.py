"""The built-in scheduler: runs cron triggers inside a long-running process."""

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.cron import next_after, parse_schedule, zone
from drumbeat.runtime.task_group import plain_task_group
from drumbeat.triggers.model import RunBeats, Trigger, TriggerType

log = logging.getLogger(__name__)

_LONGEST_SLEEP = timedelta(seconds=30)  #: longest sleep, so that a correction of the wall clock is noticed


def due_after(trigger: Trigger, moment: datetime) -> datetime:
    """Return when a trigger with a schedule is due next after ``moment``."""
    return next_after(parse_schedule(trigger.schedule or ""), moment, zone(trigger.timezone))


class Scheduler:
    """Fires cron triggers at their scheduled times until cancelled. Firing a trigger runs a beat (one pass of a control loop).

    Triggers run independently: a slow beat delays no other trigger. A scheduled time that comes while the trigger's last beat
    still runs is skipped. All times missed while this machine slept cause only one beat, after it wakes up.
    """

    def __init__(self, triggers: Sequence[Trigger], run: RunBeats, clock: Clock) -> None:
        self._triggers = [trigger for trigger in triggers if trigger.type is TriggerType.CRON]
        self._run = run
        self._clock = clock

    async def keep(self) -> None:
        """Fire each cron trigger at its scheduled times, until cancelled."""
        async with plain_task_group() as group:
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
            log.info("trigger %s fired; result: %s", trigger.name, await self._run(trigger.firing()))
        except Exception:
            log.exception("trigger %s failed; it runs again at its next scheduled time", trigger.name)
