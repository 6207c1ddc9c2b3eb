"""drumbeat fleet run and beat: the same beat, until told to stop or once; each tells its cycle's summary (seed 004)."""

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

UNSEEN = frozenset({"state"})  #: of a beat's summary: what it leaves to the next, for no reader


@app.command()
def run(
    pool: PoolArgument,
    every: Annotated[
        str | None,
        typer.Option(
            "--every", help="Between two beats; kept in the policy. At first: ORCHESTRATOR_POLL_SEC, or the policy's, 30s"
        ),
    ] = None,
    provider: ProviderOption = None,
    store: StoreOption = None,
) -> None:
    """Beat until told to stop, and at once when a job is pushed to an empty queue. Any number may run: one leads.

    Prints each cycle's summary as a line of JSON; where nobody reads them it beats on, and the next line that can be written
    says how many were ``missed``. Workers outlive it.

    What is set in seed 004's variables, and over them here, is first written into the pool's
    policy, if it may be: another provider may not while workers of the old one are there. A policy that is changed meanwhile
    is followed, its provider and its pace too.
    """
    settings = beat_settings(provider, every)

    async def work(plane: ControlPlane) -> None:
        policy, stop, teller = await plane.fleets.apply_environment(pool, **settings), asyncio.Event(), _Teller()
        turned = await _beat_by(plane, pool, policy, teller, stop)
        while turned is not None and not stop.is_set():
            turned = await _beat_on(plane, pool, turned, teller, stop)

    with logging_to_stderr(logging.INFO, NonBlockingHandler(NonBlockingOutput(sys.stderr))):
        with_control_plane(store, work)


async def _beat_on(
    plane: ControlPlane, pool: str, policy: "FleetPolicy", teller: "_Teller", stop: asyncio.Event
) -> "FleetPolicy | None":
    """The same for a policy that came later: one that cannot be followed from here is waited out, for it may be mended."""
    try:
        return await _beat_by(plane, pool, policy, teller, stop)
    except DrumbeatError as exc:
        log.error("%s; nothing is decided until that is mended", exc)
    with until_stopped(stop), contextlib.suppress(TimeoutError):
        async with asyncio.timeout(policy.every.total_seconds()):
            await stop.wait()
    return await plane.fleet(pool).policy()


async def _beat_by(
    plane: ControlPlane, pool: str, policy: "FleetPolicy", teller: "_Teller", stop: asyncio.Event
) -> "FleetPolicy | None":
    """Beat until told to stop; or until the pool's policy wants another provider or pace, and then answers with it."""
    course = _Course(policy.provider, policy.every)
    async with plane.fleets.spawner(pool, policy.provider) as spawner, plane.watching():
        with until_stopped(stop, course.over):
            await plane.fleets.run(pool, spawner, policy.every, course.over, teller.tell, course.heed)
    return course.turned


@app.command()
def beat(
    pool: PoolArgument,
    provider: ProviderOption = None,
    store: StoreOption = None,
    _as_json: Annotated[bool, typer.Option("--json", help="It prints JSON in any case.")] = False,
) -> None:
    """Look, decide and act once, as ``run`` does each time; prints the cycle's summary as JSON (seed 004).

    Exit code 1 when something could not be done. Variables of seed 004 and --provider are kept as ``run`` keeps them.
    """

    async def work(plane: ControlPlane) -> Mapping[str, Any]:
        return beat_summary(await plane.fleets.beat(pool, **beat_settings(provider)))

    found = with_control_plane(store, work)
    show_json(found)
    if found["failed"] or found.get("provider_error") or any(action.get("error") for action in found["done"]):
        raise typer.Exit(1)


def beat_settings(provider: str | None, every: str | None = None) -> dict[str, Any]:
    """What of a beat's command is a field of the policy. Raises InvalidInput."""
    spans = {"every": parse_age(every).total_seconds()} if every else {}
    return spans | ({"provider": provider} if provider else {})


def beat_summary(report: "BeatReport") -> dict[str, Any]:
    """A cycle's summary, and what came of it."""
    summary = {name: value for name, value in report.summary.items() if name not in UNSEEN}
    return {**summary, "led": report.led, "done": report.actions, "why_not": report.why_not, "failed": report.error}


@dataclass(slots=True)
class _Course:
    """What a loop was begun with, and the policy that no longer goes with it."""

    provider: str
    every: timedelta
    over: asyncio.Event = field(default_factory=asyncio.Event)
    turned: "FleetPolicy | None" = None

    def heed(self, policy: "FleetPolicy") -> None:
        """Raises InvalidSettings where nothing may be done any more: workers would be started in the wrong place."""
        if (policy.provider, policy.every) == (self.provider, self.every):
            return
        self.turned = policy
        self.over.set()
        if policy.provider != self.provider:
            raise InvalidSettings(f"the provider is {policy.provider} now, it was {self.provider}; beating anew")


@dataclass(slots=True)
class _Teller:
    """Says what came of each beat; while standing by, only what is new."""

    out: NonBlockingOutput = field(default_factory=lambda: NonBlockingOutput(sys.stdout))
    last: str | None = None

    def tell(self, report: "BeatReport") -> None:
        news = None if report.led else report.why_not or report.error
        if report.led or news != self.last:
            self._write(beat_summary(report))
        self.last = news

    def _write(self, cycle: Mapping[str, Any]) -> None:
        """A reader who does not read is not waited for."""
        missed = self.out.missed
        went = self.out.write(to_json({**cycle, "missed": missed} if missed else cycle))
        if not went and not missed:
            log.warning("nobody reads what is printed: cycles are left out until somebody does")
