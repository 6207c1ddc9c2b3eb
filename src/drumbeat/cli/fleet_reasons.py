"""drumbeat fleet explain, plan and replay: explain past decisions, show the next one, replay past ones with another policy."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from drumbeat.cli.fleet_beats import beat_settings
from drumbeat.cli.fleet_options import PoolArgument, ProviderOption, SetOption, parse_settings
from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.render import say, show_json, text
from drumbeat.composition.offline import sentences
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput

if TYPE_CHECKING:
    from drumbeat.composition.plane import BeatExplanation

app = typer.Typer()


@app.command()
def explain(
    pool: PoolArgument,
    at: Annotated[
        str | None, typer.Option("--at", help="Explain the last beat before this time, such as 2026-01-31T12:00:00 (UTC).")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain the last scaling decision: what the beat saw, what each rule wanted, and which limits applied."""
    when = parse_moment(at) if at else None
    _print_explanation(with_control_plane(store, lambda plane: plane.fleet(pool).explain(when)), as_json=as_json)


@app.command()
def plan(pool: PoolArgument, provider: ProviderOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show what a beat would do now, without doing it. Environment variables apply as in fleet beat.

    Exit code 1 if the engine cannot list its instances, or has refused workers and the retry delay is not over.
    """

    async def work(plane: ControlPlane) -> "BeatExplanation":
        policy = await plane.fleets.effective_policy(pool, **beat_settings(provider))
        async with plane.fleets.spawner(pool, policy.provider) as spawner:
            return await plane.fleet(pool).plan(spawner, policy)

    found = with_control_plane(store, work)
    _print_explanation(found, as_json=as_json, heading="to do:")
    if found.provider_error is not None:
        raise typer.Exit(1)


def _print_explanation(found: "BeatExplanation", *, as_json: bool, heading: str = "done:") -> None:
    if as_json:
        show_json(found)
        return
    for line in sentences(found, heading):
        say(line)


def parse_moment(given: str) -> datetime:
    """Parse a time in ISO format, as UTC unless it has an offset. Raises InvalidInput."""
    try:
        found = datetime.fromisoformat(given.strip())
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as exc:
        raise InvalidInput(f"expected a time such as 2026-01-31T12:00:00, got {given!r}") from exc


@app.command()
def replay(
    pool: PoolArgument,
    since: Annotated[str, typer.Option("--since", help="How far back, such as 7d.")] = "7d",
    settings: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay recorded beats with their own or a changed policy, and list decisions that differ.

    Without --set, every decision must be the same: exit code 1 when one differs.
    """
    changes = parse_settings(settings)
    found = with_control_plane(store, lambda plane: plane.fleet(pool).replay(parse_age(since, "--since"), changes))
    if as_json:
        show_json({"share": found.share, **asdict(found)})
    else:
        say(f"{found.beats} beats, {found.same} decided the same ({found.share:.1%})")
        say(f"spawned {found.spawns_before} → {found.spawns_after}, drained {found.drains_before} → {found.drains_after}")
        for each in found.differences:
            say(f"beat {each.n} at {text(each.at)} UTC: would want {each.wanted}")
            for line in each.before:
                say(f"  - {line}")
            for line in each.after:
                say(f"  + {line}")
    if not changes and found.differences:
        raise typer.Exit(1)
