"""drumbeat pool forkserver: a process with all modules imported; forking a worker from it is faster than starting Python."""

from typing import Annotated

import typer

from drumbeat.cli.fork_server import serve
from drumbeat.cli.options import StoreOption, parse_age


def forkserver(
    idle: Annotated[
        str | None, typer.Option("--idle", help="Exit after this time without a request, such as 10m. Default: never")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Run a fork server, so that workers and checkers of this state folder start faster.

    Commands find it by its socket in the state folder, which only you can use. Without it, or when its code has changed since
    it started, processes are started as usual. Ctrl-C or SIGTERM ends it; forked processes keep running.
    """
    serve(store, parse_age(idle, "--idle") if idle else None)
