"""Stops a worker in an orderly way on SIGTERM and SIGINT."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from drumbeat.core.worker import ExitCode

if TYPE_CHECKING:
    from drumbeat.runtime.worker import WorkerLifecycle

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signals(stop: Callable[[str], object], *numbers: signal.Signals) -> Iterator[None]:
    """Inside the block these signals (default: SIGTERM and SIGINT) only call ``stop`` with the signal's name."""
    numbers = numbers or STOPPING
    loop, before = asyncio.get_running_loop(), {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        loop.add_signal_handler(number, stop, number.name)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)  # this installs the default handler
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


async def run_until_signalled(life: "WorkerLifecycle") -> ExitCode:
    """Run the worker. On the first signal it finishes its work and leaves; on a second one it leaves at once."""
    with on_stop_signals(life.request_stop):
        return await life.run()
