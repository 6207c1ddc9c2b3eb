"""Small shell programs that stand in for workers, and ways to find their processes on this machine."""

import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_IROTH, S_ISREG, S_IXOTH

import psutil

#: runs until SIGTERM, then exits with 0; ends by itself after two minutes, so that a killed test leaves nothing behind
WORKER = "trap 'kill $p; exit 0' TERM; sleep 120 & p=$!; echo ready; wait $p; exit 9"
EXITS = "echo leaving; exit $1"
#: finishes its work after SIGTERM
FINISHES = (
    "trap 'echo finishing; sleep 0.3; echo finished; kill $p; exit 0' TERM; sleep 120 & p=$!; echo ready; wait $p; exit 9"
)
STUBBORN = "trap '' TERM; echo ready; sleep 120 & wait; sleep 120 & wait"
SLOW = "trap 'kill $p; exit 0' TERM; sleep 0.7 & p=$!; wait $p; sleep 120 & p=$!; echo ready; wait $p; exit 9"
KILLS_ITSELF = "kill -9 $$; sleep 120"
#: prints each argument as hexadecimal digits
ARGUMENTS = """for each in "$@"; do echo "argument $(printf %s "$each" | od -An -v -tx1 | tr -d ' \\n')."; done; echo done"""
#: prints the variables named by its arguments as hexadecimal digits
VARIABLES = """for each in "$@"; do eval "value=\\$$each"
printf '%s %s.\\n' "$each" "$(printf %s "$value" | od -An -v -tx1 | tr -d ' \\n')"; done; echo done"""
LENGTH = 'printf %s "$LONG" | wc -c; echo done'
#: prints as many numbered lines as its argument says
TALKS = "n=0; while [ $n -lt $1 ]; do n=$((n + 1)); echo line $n; done; echo ready; sleep 120 & wait"
WRITES_ERRORS = "echo to stdout; echo to stderr >&2; echo done"
#: starts a child in its own process group and another in a new session; the children's names are its arguments
PARENT = """sh -c 'sleep 120 & wait' $1 & setsid sh -c 'sleep 120 & wait' $2 & echo ready; wait"""
#: exits, and leaves a child behind
LEAVES_A_CHILD = "setsid sh -c 'sleep 120 & wait' $1 >/dev/null 2>&1 & echo ready; sleep 0.2; exit 3"


def processes_named(mark: str) -> Sequence[psutil.Process]:
    """Return this machine's running processes with the argument ``mark``, but not the children of such processes."""
    found = {process.pid: process for process in psutil.process_iter() if mark in _arguments(process)}
    return [process for process in found.values() if _parent(process) not in found]


def _arguments(process: psutil.Process) -> Sequence[str]:
    try:
        return process.cmdline()
    except (psutil.Error, OSError):
        return ()


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def command_lines_with(text: str) -> Sequence[Sequence[str]]:
    """Return the command lines of this machine's processes that contain a text."""
    return [words for words in map(_arguments, psutil.process_iter()) if any(text in word for word in words)]


def readable_by_all(folder: Path, text: str) -> Sequence[Path]:
    """Return the files under a folder that every user can read and that contain a text."""
    found = []
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if os.stat(Path(path, name)).st_mode & S_IXOTH]
        found += [Path(path, name) for name in files if _tells_all(Path(path, name), text.encode())]
    return found


def _tells_all(path: Path, text: bytes) -> bool:
    try:
        mode = path.lstat().st_mode
        return S_ISREG(mode) and bool(mode & S_IROTH) and text in path.read_bytes()
    except FileNotFoundError:
        return False
