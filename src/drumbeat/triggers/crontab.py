"""Cron triggers as lines of the user's crontab: ours are marked, and no other line is ever touched."""

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.spawn.private import private_append
from drumbeat.triggers.model import Trigger, TriggerType

_MARK = "# drumbeat-trigger"
_PATIENCE = 30.0  #: seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CronPlace:
    """Where cron shall run a trigger."""

    file: Path  #: the triggers' own, absolute
    folder: Path  #: the working directory: drumbeat.toml, if any, is in it
    state_dir: Path  #: logs of local workers and the like; what cron runs is told there too
    store: str | None  #: None: the settings in the folder say; never a URL with a password
    state_variable: str = "DRUMBEAT_STATE_DIR"

    @property
    def log(self) -> Path:
        return self.state_dir / "triggers" / "cron.log"


def lines(triggers: Sequence[Trigger], place: CronPlace) -> list[str]:
    """A crontab line for each cron trigger. Raises InvalidSettings for one that cron could not keep."""
    return [_line(trigger, place) for trigger in triggers if trigger.type is TriggerType.CRON]


def _line(trigger: Trigger, place: CronPlace) -> str:
    if trigger.timezone is not None:
        raise InvalidSettings(
            f"trigger {trigger.name} has timezone {trigger.timezone}, but cron goes by this machine's own; "
            f"remove it, or use: drumbeat trigger serve"
        )
    store = () if place.store is None else ("--store", place.store)
    fire = (sys.executable, "-m", "drumbeat", "trigger", "fire", trigger.name, "--file", str(place.file), *store)
    where = f"cd {shlex.quote(str(place.folder))} && {place.state_variable}={shlex.quote(str(place.state_dir))}"
    command = f"{where} {shlex.join(fire)} >> {shlex.quote(str(place.log))} 2>&1"
    if "\n" in command:
        raise InvalidSettings(f"expected paths without line breaks, got {command!r}")
    escaped = command.replace("%", r"\%")  # to cron a bare % is the end of the command
    return f"{trigger.schedule} {escaped} {_mark(place.file)}"


def _mark(file: Path) -> str:
    return f"{_MARK} {file}".replace("%", r"\%")


def merged(crontab: str, ours: Sequence[str], file: Path) -> str:
    """A crontab with a file's lines replaced by these; every other line stays as it is, and where it is."""
    theirs = [line for line in crontab.splitlines() if not line.endswith(f" {_mark(file)}")]
    return "".join(f"{line}\n" for line in (*theirs, *ours))


def installed(crontab: str, file: Path) -> list[str]:
    """The lines of a crontab that are a file's."""
    return [line for line in crontab.splitlines() if line.endswith(f" {_mark(file)}")]


async def install(triggers: Sequence[Trigger], place: CronPlace) -> Sequence[str]:
    """Put a file's cron triggers into the user's crontab, in place of what was there of it. Answers with the lines."""
    ours = lines(triggers, place)
    private_append(place.log).close()
    await _replace(ours, place.file)
    return ours


async def remove(file: Path) -> Sequence[str]:
    """Take a file's lines away. Answers with them."""
    gone = installed(await _read(), file)
    if gone:
        await _replace((), file)
    return gone


async def _replace(ours: Sequence[str], file: Path) -> None:
    before = await _read()
    after = merged(before, ours, file)
    if after != before:
        await _crontab("-", given=after)


async def _read() -> str:
    code, said, complaint = await _ask("-l")
    if code and "no crontab" not in complaint.lower():
        raise InvalidInput(f"expected crontab -l to list the crontab, got exit code {code}: {complaint.strip()}")
    return "" if code else said


async def _crontab(*arguments: str, given: str) -> None:
    code, _, complaint = await _ask(*arguments, given=given)
    if code:
        raise InvalidInput(f"expected crontab to take the new lines, got exit code {code}: {complaint.strip()}")


async def _ask(*arguments: str, given: str = "") -> tuple[int, str, str]:
    command = ["crontab", *arguments]
    try:
        done = await asyncio.to_thread(subprocess.run, command, input=given, capture_output=True, text=True, timeout=_PATIENCE)
    except FileNotFoundError as exc:
        raise InvalidInput("expected the command crontab, got none; install cron, or use: drumbeat trigger serve") from exc
    except subprocess.TimeoutExpired as exc:
        raise InvalidInput(f"expected {' '.join(command)} to end within {_PATIENCE:g} s, it did not") from exc
    return done.returncode, done.stdout, done.stderr
