"""Lets the user change a text in an editor."""

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from drumbeat.core.errors import InvalidInput


@contextmanager
def edited_file(text: str, name: str) -> Iterator[Path]:
    """Open a text in the user's editor and yield the file that the editor has saved. Raises InvalidInput.

    ``name``: the name of the file, by which editors choose a syntax.
    """
    command = _editor()
    with tempfile.TemporaryDirectory(prefix="drumbeat-") as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        _run([*command, str(path)])
        yield path


def _editor() -> Sequence[str]:
    """Return the command that the environment names as the user's editor, split as a shell does. Raises InvalidInput."""
    variable = next((each for each in ("VISUAL", "EDITOR") if os.environ.get(each, "").strip()), None)
    if variable is None:
        raise InvalidInput("expected --file, --set or $EDITOR to change the template, got none of them")
    try:
        return shlex.split(os.environ[variable])
    except ValueError as exc:
        raise InvalidInput(f"expected {variable} to be a command, got {os.environ[variable]!r}: {exc}") from exc


def _run(command: Sequence[str]) -> None:
    """Run the editor until it exits. Raises InvalidInput. Ctrl-C is left to the editor, which may use it as a command."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        code = subprocess.run(command, check=False).returncode
    except OSError as exc:
        raise InvalidInput(
            f"cannot start the editor {command[0]!r}: {exc.strerror}; set EDITOR to another one, or pass --file or --set"
        ) from exc
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        raise InvalidInput(f"the editor {command[0]!r} exited with code {code}; the template is unchanged")
