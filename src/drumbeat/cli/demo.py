"""drumbeat demo: a one-minute demonstration on this machine."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.demo_bench import play_bench
from drumbeat.cli.demo_fleet import play_fleet
from drumbeat.cli.render import say
from drumbeat.composition.base import private_folder
from drumbeat.core.errors import InvalidInput
from drumbeat.settings import Settings, absolute, public_url

REPORT = Path("drumbeat-demo.html")
FOLDER = Path("drumbeat-demo")


class DemoName(StrEnum):
    """Which demo to run."""

    BENCH = "bench"  #: how many connections a database can serve
    FLEET = "fleet"  #: workers are started, killed, replaced and drained


def demo(
    story: Annotated[
        DemoName,
        typer.Argument(
            metavar="[bench|fleet]",
            help="bench: find the maximum number of connections. fleet: start, retarget, kill, replace and drain workers.",
        ),
    ] = DemoName.BENCH,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=20, help="Number of workers. Default: 2 for bench, 3 for fleet")
    ] = None,
    report: Annotated[Path, typer.Option("--report", help="File for the benchmark report.")] = REPORT,
    folder: Annotated[Path, typer.Option("--folder", help="Folder for the store and the database under test.")] = FOLDER,
    store: Annotated[
        str | None, typer.Option("--store", help="Store URL. Default: a SQLite file in that folder", show_default=False)
    ] = None,
) -> None:
    """Run a one-minute demo with real worker processes, and show why each decision was made.

    The data is kept, and can be viewed in the dashboard afterwards.
    """
    path = _create_folder(folder.absolute())
    settings = Settings(store=absolute(store or f"sqlite:///{path}/drumbeat.db"), state_dir=path / "state")
    if story is DemoName.FLEET:
        page = play_fleet(settings, workers or 3)
    else:
        page = play_bench(settings, workers or 2, path, report.absolute())
    say_where(settings.store, page, path)


def _create_folder(folder: Path) -> Path:
    """Create the folder for the demo's files. Raises InvalidInput if that fails."""
    try:
        private_folder(folder)
    except OSError as exc:
        raise InvalidInput(
            f"cannot create the demo folder {str(folder)!r}: {exc.strerror}; choose another one with --folder"
        ) from exc
    return folder


def say_where(store: str, page: str, folder: Path) -> None:
    """Print how to open the demo in the dashboard. The password in the store's URL is not printed."""
    say("\nOpen it in the dashboard:", style="bold")
    say(f"  drumbeat serve --store {shlex.quote(public_url(store) or 'STORE')}")
    say(f"  then http://127.0.0.1:8321{page}")
    say(f"The data is in {folder}; delete that folder when you no longer need it.")
