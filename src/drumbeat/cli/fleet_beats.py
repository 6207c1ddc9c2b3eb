"""drumbeat fleet run and beat: run the controller of a fleet, continuously or once."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drumbeat.cli.fleet_options import PoolArgument, ProviderOption
from drumbeat.cli.options import StoreOption, parse_age, with_control_plane
from drumbeat.cli.output import NonBlockingHandler, NonBlockingOutput
from drumbeat.cli.render import show_json, to_json
from drumbeat.composition.plane import ControlPlane, logging_to_stderr, until_stopped
from drumbeat.core.errors import DrumbeatError, InvalidSettings

if TYPE_CHECKING:
    from drumbeat.composition.plane import BeatReport, FleetPolicy

app = typer.Typer()
log = logging.getLogger(__name__)

INTERNAL_FIELDS = frozenset({"state"})  #: fields of a beat's summary that are not printed: only the next beat reads them


@app.command()
def run(
    pool: PoolArgument,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", help="Time between beats; saved in the policy. Default: ORCHESTRATOR_POLL_SEC, or the policy's, 30s"
        ),
    ] = None,
    provider: ProviderOption = None,
    store: StoreOption = None,
) -> None:
    """Run the autoscaler of a fleet until it is stopped. Several can run at once: one leads, the others wait to take over.

    A job pushed to an empty queue causes a beat at once. Each beat prints its summary as a line of JSON; if the output is not
    read, lines are dropped and the next line says how many were ``missed``. Workers keep running when this command ends.

    The options, and the environment variables of the earlier RunPod orchestrator, are first saved in the policy of the pool;
    options take precedence. The engine cannot change while workers of the old engine run. Later changes of the policy
    take effect, including its engine and interval.
    """
    settings = beat_settings(provider, every)

    async def work(plane: ControlPlane) -> None:
        policy, stop, printer = await plane.fleets.apply_environment(pool, **settings), asyncio.Event(), _BeatPrinter()
        changed = await _run_loop(plane, pool, policy, printer, stop)
        while changed is not None and not stop.is_set():
            changed = await _run_changed(plane, pool, changed, printer, stop)

    with logging_to_stderr(logging.INFO, NonBlockingHandler(NonBlockingOutput(sys.stderr))):
        with_control_plane(store, work)


async def _run_changed(
    plane: ControlPlane, pool: str, policy: "FleetPolicy", printer: "_BeatPrinter", stop: asyncio.Event
) -> "FleetPolicy | None":
    """Run the autoscaler with a changed policy, until stopped (returns None) or the policy changes again (returns the new one).

    If the autoscaler fails, waits for one interval, then returns the policy that is in the store.
    """
    try:
        return await _run_loop(plane, pool, policy, printer, stop)
    except DrumbeatError as exc:
        log.error("cannot apply the changed policy of pool %s: %s; retrying in %s", pool, exc, policy.every)
    with until_stopped(stop), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(policy.every.total_seconds()):
            await stop.wait()
    return await plane.fleet(pool).policy()


async def _run_loop(
    plane: ControlPlane, pool: str, policy: "FleetPolicy", printer: "_BeatPrinter", stop: asyncio.Event
) -> "FleetPolicy | None":
    """Run the autoscaler until stopped (returns None) or until its provider or interval changes (returns the new policy)."""
    watch = _PolicyWatch(policy.provider, policy.every)
    async with plane.fleets.spawner(pool, policy.provider) as spawner, plane.watching():
        with until_stopped(stop, watch.over):
            running = plane.fleets.run(pool, spawner, policy.every, watch.over, printer.print_report, watch.check, hurry=stop)
            silence = await running
    if stop.is_set() and silence is not None:
        await _warn_of_workers(plane, pool, silence)
    return watch.changed


async def _warn_of_workers(plane: ControlPlane, pool: str, silence: str) -> None:
    """Log which workers might still run at an engine that does not answer, and the command that ends them."""
    live = [each for each in (await plane.fleet(pool).status()).workers if not each.was_refused]
    if live:
        names = ", ".join(each.worker_id for each in live)
        log.warning("stopped while %s; workers may still run: %s; end them with: drumbeat fleet drain %s", silence, names, pool)


@app.command()
def beat(
    pool: PoolArgument,
    provider: ProviderOption = None,
    store: StoreOption = None,
    _as_json: Annotated[bool, typer.Option("--json", help="No effect: the output is always JSON.")] = False,
) -> None:
    """Run the autoscaler once and print the summary as JSON.

    Exit code 1 when the beat or an action failed, or the engine did not list its workers. Environment variables and --engine
    are saved in the policy, as in fleet run.
    """

    async def work(plane: ControlPlane) -> Mapping[str, Any]:
        return beat_summary(await plane.fleets.beat(pool, **beat_settings(provider)))

    found = with_control_plane(store, work)
    show_json(found)
    if found["failed"] or found.get("provider_error") or any(action.get("error") for action in found["done"]):
        raise typer.Exit(1)


def beat_settings(provider: str | None, every: str | None = None) -> dict[str, Any]:
    """Return the options --engine and --every, if given, as fields of a fleet's policy. Raises InvalidInput."""
    interval = {"every": parse_age(every, "--every").total_seconds()} if every else {}
    return interval | ({"provider": provider} if provider else {})


def beat_summary(report: "BeatReport") -> dict[str, Any]:
    """Return the summary of a beat (pass of the autoscaler) with its actions and errors, to be printed as JSON."""
    summary = {name: value for name, value in report.summary.items() if name not in INTERNAL_FIELDS}
    return {**summary, "led": report.led, "done": report.actions, "why_not": report.why_not, "failed": report.error}


@dataclass(slots=True)
class _PolicyWatch:
    """Ends the running autoscaler loop when the provider or the interval of the stored policy changes."""

    provider: str
    every: timedelta
    over: asyncio.Event = field(default_factory=asyncio.Event)
    changed: "FleetPolicy | None" = None

    def check(self, policy: "FleetPolicy") -> None:
        """End the running autoscaler loop if the policy's provider or interval has changed. If the provider has changed, also
        raises InvalidSettings, so that the loop starts no more workers at the old provider."""
        if (policy.provider, policy.every) == (self.provider, self.every):
            return
        self.changed = policy
        self.over.set()
        if policy.provider != self.provider:
            raise InvalidSettings(f"the engine changed from {self.provider} to {policy.provider}; restarting the loop")


@dataclass(slots=True)
class _BeatPrinter:
    """Prints a summary of each beat (autoscaler pass). A beat in which this process did not lead is printed only if the
    reason for that differs from the reason at the beat before."""

    out: NonBlockingOutput = field(default_factory=lambda: NonBlockingOutput(sys.stdout))
    last: str | None = None

    def print_report(self, report: "BeatReport") -> None:
        reason = None if report.led else report.why_not or report.error
        if report.led or reason != self.last:
            self._write(beat_summary(report))
        self.last = reason

    def _write(self, summary: Mapping[str, Any]) -> None:
        """Print the summary of a beat (autoscaler pass) as a line, without blocking; dropped if the output is full."""
        missed = self.out.missed
        written = self.out.write(to_json({**summary, "missed": missed} if missed else summary))
        if not written and not missed:
            log.warning("no program reads standard output any more; beat summaries are dropped until one does")
