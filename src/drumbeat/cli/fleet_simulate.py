"""drumbeat fleet simulate: a trace's jobs under a policy, on virtual time."""

from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.fleet_options import FileOption, SetOption, parse_settings
from drumbeat.cli.options import JsonOption, parse_age, refuse_nan
from drumbeat.cli.render import say, show_json
from drumbeat.offline import simulate_trace

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
    file: FileOption = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it: a file that ends in .html or .svg.")] = None,
    as_json: JsonOption = False,
) -> None:
    """What a policy would cost on a trace, and how long jobs would wait, beside an oracle that knows what comes.

    Unless set, the seed's policy has its own bounds (2 to 10 workers), the others none. Cost is paid worker-hours; the oracle
    serves every job at once, so a policy that lets jobs wait can cost less than it.
    """
    around = {"spawn_lag": parse_age(spawn_lag), "jitter": jitter, "granule": parse_age(granule), "price_per_hour": price}
    found = simulate_trace(trace, policy, parse_settings(settings), file, seed=seed, **around)
    if plot is not None:
        found.draw(plot)
    if as_json:
        show_json(found.figures())
        return
    for name, value in found.figures().items():
        say(f"{name:>14}  {value:.3f}" if isinstance(value, float) else f"{name:>14}  {value}")
    for line in found.lines():
        say(line)
