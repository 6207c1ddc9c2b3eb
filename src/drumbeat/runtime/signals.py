"""From the operating system's signals to an orderly stop."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from drumbeat.core.worker import ExitCode
from drumbeat.runtime.worker import WorkerLife

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signals(stop: Callable[[str], object]) -> Iterator[None]:
    """Inside the block SIGTERM and SIGINT call ``stop`` with the signal's name, and nothing else."""
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, stop, number.name)
    try:
        yield
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)


async def run_until_signalled(life: WorkerLife) -> ExitCode:
    """Live; a first signal drains, a second ends at once."""
    with on_stop_signals(life.request_stop):
        return await life.run()
