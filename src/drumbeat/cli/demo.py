"""drumbeat demo: what it is about, in a minute, on this machine alone."""

import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.demo_bench import play_bench
from drumbeat.cli.demo_fleet import play_fleet
from drumbeat.settings import Settings, absolute

REPORT = Path("drumbeat-demo.html")


class Story(StrEnum):
    """What there is to see."""

    BENCH = "bench"  #: how much load a database takes
    FLEET = "fleet"  #: workers that come, go and are replaced


def demo(
    story: Annotated[
        Story,
        typer.Argument(
            metavar="[bench|fleet]",
            help="bench: find how many connections a database takes. fleet: start, retarget, kill, replace, drain.",
        ),
    ] = Story.BENCH,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=20, help="How many; two for the bench, three for the fleet.")
    ] = None,
    report: Annotated[Path, typer.Option("--report", help="Where the bench's report goes.")] = REPORT,
    store: Annotated[
        str | None, typer.Option("--store", help="A store to use instead of a new SQLite file.", show_default=False)
    ] = None,
) -> None:
    """Watch Drumbeat for a minute: real worker processes, one database, and why each decision was made."""
    with tempfile.TemporaryDirectory(prefix="drumbeat-demo-") as folder:
        url = absolute(store or f"sqlite:///{folder}/drumbeat.db")
        settings = Settings(store=url, state_dir=Path(folder))
        if story is Story.FLEET:
            play_fleet(settings, workers or 3)
        else:
            play_bench(settings, workers or 2, Path(folder), report.absolute())
