"""drumbeat pool forkserver: a warm process from which workers and checkers are forked."""

from typing import Annotated

import typer

from drumbeat.cli.fork_server import serve
from drumbeat.cli.options import StoreOption, parse_age


def forkserver(
    idle: Annotated[
        str | None, typer.Option("--idle", help="Leave when nobody has asked for so long, such as 10m. Else: never.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Keep a warm process, from which workers and checkers of this state folder start in a fraction of the time.

    Whoever starts one here finds it by its socket in the state folder, which only you can use; without it, or when its code has
    changed since, processes are started as usual. Ctrl-C or SIGTERM ends it; what was forked goes on.
    """
    serve(store, parse_age(idle) if idle else None)
