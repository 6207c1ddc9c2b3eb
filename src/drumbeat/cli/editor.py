"""Lets the user change a text in an editor."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from drumbeat.core.errors import DrumbeatError, InvalidInput, first_error


@contextmanager
def edited_file(text: str, name: str, again: str) -> Iterator[Path]:
    """Open a text in the user's editor and yield the file that the editor has saved. Raises InvalidInput if no
    editor is set, or if it fails.

    If the block fails, the file is kept, and the error names it together with the command ``again``, which uses it. ``name``:
    the name of the file, by which editors choose a syntax.
    """
    command = _editor()
    path = Path(tempfile.mkdtemp(prefix="drumbeat-")) / name
    path.write_text(text, encoding="utf-8")
    try:
        _run([*command, str(path)])
        yield path
    except Exception as exc:
        error = first_error(exc)
        if not _is_changed(path, text):
            shutil.rmtree(path.parent, ignore_errors=True)
        elif isinstance(error, DrumbeatError):
            error.args = (f"{error}; your text is kept; to use it, run: {again} {shlex.quote(str(path))}",)
        raise
    shutil.rmtree(path.parent, ignore_errors=True)


def _is_changed(path: Path, text: str) -> bool:
    """Whether the user has changed the file, which held ``text``."""
    try:
        return path.read_bytes() != text.encode()
    except OSError:
        return False


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
        raise InvalidInput(f"the editor {command[0]!r} exited with code {code}; nothing was changed")
