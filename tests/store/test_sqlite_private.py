"""A SQLite store is for its user alone from its first moment; of one that others may read its user is warned."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from drumbeat.store.open import open_store


def modes(folder: Path) -> dict[str, str]:
    return {path.name: oct(stat.S_IMODE(path.lstat().st_mode)) for path in folder.rglob("*")}


@pytest.fixture(params=[True, False], ids=["hard links", "no hard links"])
def hard_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with hard links, and one without."""

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    if not request.param:
        monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("hard_links")
async def test_a_new_store_and_the_files_beside_it_are_private(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        await store.now()
        found = modes(tmp_path)

    assert {"store.db", "store.db-wal", "store.db-shm"} <= found.keys()
    assert {mode for name, mode in found.items()} <= {"0o600", "0o700"}
    assert caplog.records == []


async def test_a_store_that_others_may_read_is_left_so_and_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "store.db"
    async with open_store(f"sqlite:///{file}", create=True):
        pass
    file.chmod(0o644)

    async with open_store(f"sqlite:///{file}") as store:
        await store.now()

    warned = [record.getMessage() for record in caplog.records if record.name.startswith("drumbeat")]
    assert warned == [f"other users of this machine can read the store; to prevent that, run: chmod 600 {file}"]
    assert modes(tmp_path)["store.db"] == "0o644"


LOCK = """
import fcntl, sys

with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


@pytest.mark.usefixtures("hard_links")
async def test_a_store_keeps_its_locks_when_it_is_opened_again_in_the_same_process(tmp_path: Path) -> None:
    """Closing any descriptor of a file drops the process's locks on it, and then another process may write at the same time."""
    url, file = f"sqlite:///{tmp_path}/store.db", tmp_path / "store.db"
    async with open_store(url, create=True) as store:
        async with open_store(url, create=True):
            pass
        await store.now()
        ended = subprocess.run([sys.executable, "-c", LOCK, str(file)], capture_output=True, text=True)

    assert "BlockingIOError" in ended.stderr
    subprocess.run([sys.executable, "-c", LOCK, str(file)], check=True)
