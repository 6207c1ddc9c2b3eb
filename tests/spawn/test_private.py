"""What Drumbeat writes is for its user alone, from the first moment."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.fork_server import listening
from drumbeat.spawn.private import last_lines, private_append, private_folder
from drumbeat.spawn.state_dir import StateDir, folder_of

NAME = (PoolId("p"), WorkerId("w"))


def modes(folder: Path) -> dict[str, str]:
    found = [folder, *folder.rglob("*")]
    return {str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode)) for path in found}


def check_private(folder: Path) -> None:
    found = modes(folder)
    loose = {name: mode for name, mode in found.items() if mode not in ("0o600", "0o700")}
    assert loose == {}
    assert len(found) > 1


def test_a_state_folder_and_all_within_it_are_private(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a" / "state", "sqlite:///x")
    kept = StateDir(folder)
    with kept.starting(NAME):
        kept.note_ref(NAME, "ref")
    with private_append(kept.log_path(NAME)) as log:
        log.write(b"said")
    with listening(folder):
        check_private(tmp_path / "a")


@pytest.mark.parametrize("error", [PermissionError(1, "Operation not permitted"), OSError(95, "Operation not supported")])
def test_two_stores_share_no_state_folder_on_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise error

    monkeypatch.setattr(os, "link", refuse)
    stores = [f"sqlite:///{n}" for n in range(8)]

    with ThreadPoolExecutor(8) as threads:
        first = [*threads.map(lambda store: folder_of(tmp_path / "state", store), stores)]
    again = [folder_of(tmp_path / "state", store) for store in stores]

    assert first == again
    assert len({*first}) == 8
    assert tmp_path / "state" in first
    assert not [*(tmp_path / "state").glob(f"store.{os.getpid()}.*")]
    check_private(tmp_path / "state")


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)

    private_folder(shared / "ours")

    assert modes(shared) == {".": "0o777", "ours": "0o700"}


def test_a_log_that_is_there_keeps_its_mode_and_what_it_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before ")
    log.chmod(0o644)

    with private_append(log) as output:
        output.write(b"after")

    assert (log.read_bytes(), oct(stat.S_IMODE(log.stat().st_mode))) == (b"before after", "0o644")


@pytest.mark.parametrize(
    ("content", "lines", "expected"),
    [
        (b"", 3, ""),
        (b"a\nb\nc\n", 2, "b\nc\n"),
        (b"a\nb\nunfinished", 2, "b\nunfinished"),
        (b"a\nb\n", 9, "a\nb\n"),
        (b"x" * 200_000 + b"\nlast\n", 1, "last\n"),
        (b"".join(b"%d\n" % n for n in range(100_000)), 3, "99997\n99998\n99999\n"),
        (b"\n\n\n", 2, "\n\n"),
    ],
)
def test_the_last_lines_of_a_file_are_read(tmp_path: Path, content: bytes, lines: int, expected: str) -> None:
    (tmp_path / "log").write_bytes(content)

    assert last_lines(tmp_path / "log", lines) == expected
