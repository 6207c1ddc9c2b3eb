"""drumbeat fleet simulate: a trace's jobs under a policy, on virtual time."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from drumbeat.cli.fleet_options import ExpectedServiceOption, FileOption, SetOption, parse_settings
from drumbeat.cli.options import JsonOption, parse_age, refuse_nan
from drumbeat.cli.render import say, show_json
from drumbeat.composition.offline import simulate_trace

app = typer.Typer()


@app.command()
def simulate(
    trace: Annotated[
        Path, typer.Option("--trace", help="CSV with the header arrival,duration (seconds), or an Azure LLM trace as it is.")
    ],
    policy: Annotated[
        str | None,
        typer.Option("--policy", help="lag_aware, queue_cover, queue_ratio or fixed. Default: the file's, or lag_aware"),
    ] = None,
    spawn_lag: Annotated[str, typer.Option("--spawn-lag", help="From asking for a worker to its being ready.")] = "120s",
    jitter: Annotated[
        float, typer.Option("--jitter", callback=refuse_nan, min=0, max=0.99, help="A start takes 1 ± this many lags.")
    ] = 0.0,
    granule: Annotated[str, typer.Option("--granule", help="Paid time is rounded up to this.")] = "1s",
    price: Annotated[float, typer.Option("--price", callback=refuse_nan, min=0, help="Money per worker and hour.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Another seed, another course of chance.")] = 0,
    settings: SetOption = None,
    expected_service: ExpectedServiceOption = None,
    file: FileOption = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it: a file that ends in .html or .svg.")] = None,
    as_json: JsonOption = False,
) -> None:
    """What a policy would cost on a trace, and how long jobs would wait, beside an oracle that knows what comes.

    Unless set, the seed's policy has its own bounds (2 to 10 workers), the others none. Cost is paid worker-hours; the oracle
    serves every job at once, so a policy that lets jobs wait can cost less than it. Cold: the fleet begins without workers and
    has learnt nothing. Warm: the same jobs when they come a second time, right after the first.
    """
    around = {"spawn_lag": parse_age(spawn_lag), "jitter": jitter, "granule": parse_age(granule), "price_per_hour": price}
    hint = {"expected_service": expected_service} if expected_service is not None else {}
    found = simulate_trace(trace, policy, hint | parse_settings(settings), file, seed=seed, **around)
    if plot is not None:
        found.draw(plot)
    if as_json:
        show_json(found.figures())
        return
    for line in _table(found.figures()):
        say(line)
    for line in found.lines():
        say(line)


def _table(figures: Mapping[str, Any]) -> Iterator[str]:
    """The cold and the warm figures beside each other."""
    warm = figures["warm"] or {}
    yield f"{'':>14}  {'cold':>12}  {'warm':>12}"
    for name in [name for name in figures if name != "warm"]:
        yield f"{name:>14}  {_shown(figures[name]):>12}  {_shown(warm.get(name, '-')):>12}"


def _shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
