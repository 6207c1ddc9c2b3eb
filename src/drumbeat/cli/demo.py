"""drumbeat demo: what it is about, in a minute, on this machine alone."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.demo_bench import play_bench
from drumbeat.cli.demo_fleet import play_fleet
from drumbeat.cli.render import say
from drumbeat.core.errors import InvalidInput
from drumbeat.settings import Settings, absolute, public_url

REPORT = Path("drumbeat-demo.html")
FOLDER = Path("drumbeat-demo")


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
    folder: Annotated[Path, typer.Option("--folder", help="Where its store and the database under test are kept.")] = FOLDER,
    store: Annotated[
        str | None, typer.Option("--store", help="A store to use instead of a SQLite file in that folder.", show_default=False)
    ] = None,
) -> None:
    """Watch Drumbeat for a minute: real worker processes, one database, and why each decision was made.

    Everything is kept, and can be looked at in the dashboard afterwards.
    """
    place = _made(folder.absolute())
    settings = Settings(store=absolute(store or f"sqlite:///{place}/drumbeat.db"), state_dir=place / "state")
    if story is Story.FLEET:
        found = play_fleet(settings, workers or 3)
    else:
        found = play_bench(settings, workers or 2, place, report.absolute())
    say_where(settings.store, found, place)


def _made(folder: Path) -> Path:
    """Raises InvalidInput."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InvalidInput(
            f"expected to keep the demo in {str(folder)!r}, got: {exc.strerror}; name another place with --folder"
        ) from exc
    return folder


def say_where(store: str, page: str, folder: Path) -> None:
    """How to open it in the dashboard. A store's password is not told."""
    say("\nOpen it in the dashboard:", style="bold")
    say(f"  drumbeat serve --store {shlex.quote(public_url(store) or 'STORE')}")
    say(f"  then http://127.0.0.1:8321{page}")
    say(f"Everything is kept in {folder}; remove the folder when you have seen enough.")
