"""drumbeat fleet simulate: simulate a scaling policy on a trace of jobs, in virtual time."""

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
        Path,
        typer.Option("--trace", help="Trace of jobs: CSV with the header arrival,duration (seconds), or an Azure LLM trace."),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            help="Scaling policy: lag_aware, queue_cover, queue_ratio or fixed. Default: that of the file, or lag_aware",
        ),
    ] = None,
    spawn_lag: Annotated[str, typer.Option("--spawn-lag", help="Startup time of a worker.")] = "120s",
    jitter: Annotated[
        float,
        typer.Option("--jitter", callback=refuse_nan, min=0, max=0.99, help="Variation of the startup time: 0.2 is ± 20 %."),
    ] = 0.0,
    granule: Annotated[
        str,
        typer.Option(
            "--granule", help="Billing increment: paid time is rounded up to it. A billing_granule of the policy comes first."
        ),
    ] = "1s",
    price: Annotated[
        float,
        typer.Option(
            "--price", callback=refuse_nan, min=0, help="Price per worker and hour. A price_per_hour of the policy comes first."
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="Random seed.")] = 0,
    settings: SetOption = None,
    expected_service: ExpectedServiceOption = None,
    file: FileOption = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a plot to this .html or .svg file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Simulate a policy on a trace: its cost and the waiting time of jobs, compared with an oracle that knows the future.

    By default, queue_ratio runs 2 to 10 workers, and the other policies 0 to 1,000. Cost is paid worker-hours. The oracle
    serves every job at once, so a policy that lets jobs wait can cost less. Cold: the fleet starts without workers and
    without learned values. Warm: the same jobs repeated right after the cold pass.
    """
    conditions = {
        "spawn_lag": parse_age(spawn_lag, "--spawn-lag"),
        "jitter": jitter,
        "granule": parse_age(granule, "--granule"),
        "price_per_hour": price,
    }
    hint = {"expected_service": expected_service} if expected_service is not None else {}
    found = simulate_trace(trace, policy, hint | parse_settings(settings), file, seed=seed, **conditions)
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
    """Yield the lines of a table: each figure for a new fleet (cold), and for the same jobs run a second time (warm)."""
    warm = figures["warm"] or {}
    yield f"{'':>14}  {'cold':>12}  {'warm':>12}"
    for name in [name for name in figures if name != "warm"]:
        yield f"{name:>14}  {_text(figures[name]):>12}  {_text(warm.get(name, '-')):>12}"


def _text(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
