"""Starts programs that refuse to be root, whoever we are."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any


class RunAs(StrEnum):
    """Who a server believes it is."""

    ITSELF = "itself"  #: we are not root: nothing to do
    NAMESPACE = "namespace"  #: root here, nobody inside a user namespace: no user added, no file given away
    NOBODY = "nobody"  #: the user nobody; what it reads must be in a place that nobody can reach


class ServerFailed(Exception):
    """A server did not start or stop; the message holds the end of its log."""


@cache
def usual() -> RunAs:
    """The first way that works here."""
    if os.geteuid() != 0:
        return RunAs.ITSELF
    return RunAs.NAMESPACE if _namespaces_are_allowed() else RunAs.NOBODY


def _namespaces_are_allowed() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_unshare(), "true"], capture_output=True, check=False).returncode == 0


def _unshare() -> list[str]:
    """A user that has an entry in /etc/passwd, since initdb looks itself up; uid 1000 often has none."""
    nobody = pwd.getpwnam("nobody")
    return ["unshare", "--user", f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}"]


def _command(command: Sequence[str], run_as: RunAs) -> list[str]:
    return [*(_unshare() if run_as is RunAs.NAMESPACE else []), *command]


def _identity(run_as: RunAs) -> dict[str, Any]:
    if run_as is not RunAs.NOBODY:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def give(folder: Path, run_as: RunAs) -> None:
    """Let the server own a folder, where it is somebody else."""
    if run_as is RunAs.NOBODY:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        folder.chmod(0o755)


def run(command: Sequence[str], run_as: RunAs, folder: Path) -> None:
    """Run a command to its end; raises ServerFailed with what it said."""
    done = subprocess.run(
        _command(command, run_as), cwd=folder, capture_output=True, text=True, check=False, **_identity(run_as)
    )
    if done.returncode != 0:
        raise ServerFailed(f"{command[0]} exited with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")


def start(
    command: Sequence[str],
    run_as: RunAs,
    log: Path,
    environment: Mapping[str, str] | None = None,
    within: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, so that a Ctrl-C meant for the tests does not reach it before they do."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [*within, *_command(command, run_as)],
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,
            **_identity(run_as),
        )
