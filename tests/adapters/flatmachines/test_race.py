"""The package's own SQLite backend and ours under the same race: no job may be handed out twice (C64)."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from adapters.flatmachines.claimer import POOL, backend
from servers.places import memory_folder

CLAIMER = Path(__file__).with_name("claimer.py")
WORKERS = 4
ITEMS = 500


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """In memory where there is room: the race is between processes, not with the disk."""
    with TemporaryDirectory(dir=memory_folder()) as folder:
        yield Path(folder)


async def race(which: str, file: Path) -> tuple[set[str], Counter[str]]:
    """What was pushed, and how often each was handed out to one of several processes."""
    made = backend(which, str(file))
    pushed = {str(await made.pool(POOL).push({"n": n})) for n in range(ITEMS)}
    started = [await _start(which, file, f"w{n}") for n in range(WORKERS)]
    for process in started:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    answers = [json.loads(out) for out, _ in await asyncio.gather(*(process.communicate(b"go\n") for process in started))]
    if which == "ours":
        await made.close()
    return pushed, Counter(item for answer in answers for item in answer["got"])


async def _start(which: str, file: Path, worker_id: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, CLAIMER, which, str(file), worker_id, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


@pytest.mark.slow
async def test_ours_hands_no_item_out_twice_where_the_packages_own_does(quick_folder: Path) -> None:
    pushed, theirs = await race("theirs", quick_folder / "theirs.sqlite")
    twice = {item: times for item, times in theirs.items() if times > 1}
    print(f"\ntheirs: {theirs.total()} claims of {len(pushed)} items, {len(twice)} handed out more than once")

    pushed, ours = await race("ours", quick_folder / "ours.sqlite")
    print(f"ours:   {ours.total()} claims of {len(pushed)} items, none handed out more than once")
    assert ours == Counter(pushed)


async def _complete(pool: Any, item_id: str, result: str) -> str:
    try:
        await pool.complete(item_id, result)
    except KeyError:
        return "refused"
    return "accepted"


@pytest.mark.parametrize("which", ["theirs", "ours"])
async def test_a_late_result_of_a_reaped_worker_is_refused_by_ours(tmp_path: Path, which: str) -> None:
    """As two processes would: each with a backend of its own on the same file."""
    file = str(tmp_path / "work.sqlite")
    slow, right = backend(which, file), backend(which, file)
    item_id = str(await slow.pool(POOL).push("text"))
    await slow.pool(POOL).claim("slow")
    await right.pool(POOL).release_by_worker("slow")
    await right.pool(POOL).claim("right")

    late = await _complete(slow.pool(POOL), item_id, "late")
    holder = await _complete(right.pool(POOL), item_id, "right")
    if which == "ours":
        await slow.close()
        await right.close()
        assert (late, holder) == ("refused", "accepted")
    print(f"\n{which}: the late result is {late}, the rightful holder's is {holder}")
