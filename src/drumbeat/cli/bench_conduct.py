"""Controls a run from a terminal: shows it live, stops it on Ctrl-C, and names workers that might still run afterwards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from drumbeat.cli.live import watched
from drumbeat.cli.render import errors
from drumbeat.composition.plane import ControlPlane, on_stop_signals
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.recovery import unconfirmed
from drumbeat.core.run import RunId, RunStatus

if TYPE_CHECKING:
    from drumbeat.composition.plane import BenchService, RunReport


async def orchestrate_and_watch(plane: ControlPlane, bench: "BenchService", run_id: RunId, *, quiet: bool) -> RunStatus:
    """Control a run and show it live until it ends or another orchestrator takes it over. Returns the run's status."""
    leave, hurry = asyncio.Event(), asyncio.Event()
    async with _stop_on_signals(bench, run_id, leave, hurry), watched(plane.store, run_id, bench.judgement, quiet=quiet):
        status = await bench.conduct(run_id, leave, hurry=hurry)
    warn_of_workers(await bench.status(run_id))
    return status


def warn_of_workers(found: "RunReport") -> bool:
    """Print which workers might still run after their run ended or was left to another process, and the command that ends them.

    Returns whether there are such workers.
    """
    left = unconfirmed(found.workers)
    if left:
        places = {each.place or each.engine for each in left} - {None}
        where = f" ({', '.join(sorted(str(place) for place in places))})" if places else ""
        names = ", ".join(each.worker_id for each in left)
        line = f"workers that may still run{where}: {names}; end them with: drumbeat bench stop {found.run.run_id}"
        errors.print(line, style="yellow", soft_wrap=True)
    return bool(left)


@asynccontextmanager
async def _stop_on_signals(
    bench: "BenchService", run_id: RunId, leave: asyncio.Event, hurry: asyncio.Event
) -> AsyncIterator[None]:
    """During the block, a first Ctrl-C or SIGTERM stops the run, and a second one leaves it to another orchestrator.

    Any signal sets ``hurry``: from then on, the orchestrator does not wait for engines that do not answer."""
    signalled = asyncio.Event()

    def on_signal(_: str) -> None:
        if signalled.is_set():
            leave.set()
        signalled.set()
        hurry.set()

    async def stop_run() -> None:
        while await signalled.wait():
            errors.print("stopping: workers finish their current operations …", style="yellow")
            try:
                await bench.stop(run_id)
                return
            except StoreUnavailable as exc:
                errors.print(f"could not stop the run: {exc}; interrupt again to retry", style="red", soft_wrap=True)
                signalled.clear()

    with on_stop_signals(on_signal):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(stop_run())
            try:
                yield
            finally:
                task.cancel()
