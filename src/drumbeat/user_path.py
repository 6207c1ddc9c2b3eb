"""Paths that a user writes, which may begin with ``~`` or ``~name``."""

from pathlib import Path

from drumbeat.core.errors import InvalidSettings


def user_path(text: str, expected: str) -> Path:
    """Return the path with its home folder in place of ``~``; ``expected`` begins the message of InvalidSettings."""
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:
        user = text.partition("/")[0].removeprefix("~")
        reason = f"there is no user {user!r}" if user else "this process has no home folder; set HOME, or write the whole path"
        raise InvalidSettings(f"{expected}, got {text}: {reason}") from exc
