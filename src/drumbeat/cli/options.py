"""Options that many commands share, and what becomes of them."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import typer

from drumbeat.control_plane import ControlPlane, open_control_plane
from drumbeat.settings import STORE_VARIABLE, Settings, load_settings

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on the faster loop where it is installed (the extra ``fast``)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help=f"The store's URL: sqlite:///FILE or postgresql://USER@HOST/DATABASE. Better kept in {STORE_VARIABLE} if it "
        "holds a password. Default: sqlite:///drumbeat.db",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="How many rows at the most.")]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="A pool's name, or a run's id.")]


def settings_for(store: str | None) -> Settings:
    return load_settings(os.environ, store=store)


@asynccontextmanager
async def control_plane(store: str | None, *, create: bool = False) -> AsyncIterator[ControlPlane]:
    async with open_control_plane(settings_for(store), create=create) as plane:
        yield plane


def with_control_plane(store: str | None, work: Callable[[ControlPlane], Awaitable[T]], *, create: bool = False) -> T:
    """Open the control plane, do one thing, close it. With ``create`` a store that is not there yet is made."""

    async def opened() -> T:
        async with control_plane(store, create=create) as plane:
            return await work(plane)

    return run(opened())
