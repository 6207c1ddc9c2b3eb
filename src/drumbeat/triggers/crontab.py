"""Install cron triggers as lines of the user's crontab. Drumbeat's lines are marked; no other line is changed."""

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.spawn.private import private_append
from drumbeat.triggers.model import Trigger, TriggerType

_MARK = "# drumbeat-trigger"
_TIMEOUT = 30.0  #: maximum seconds for one call of crontab


@dataclass(frozen=True, slots=True, kw_only=True)
class CronPlace:
    """The paths, the store's URL and the environment variables that a crontab line needs to run a trigger."""

    file: Path  #: absolute path of triggers.yml
    folder: Path  #: working directory of the command; may contain drumbeat.toml
    state_dir: Path  #: holds logs of local workers and the log of cron's runs
    store: str | None  #: the store's URL, never with a password; None: use the settings in the folder
    variables: Mapping[str, str] = field(default_factory=dict)  #: settings from environment variables; no secrets
    state_variable: str = "DRUMBEAT_STATE_DIR"

    @property
    def log(self) -> Path:
        return self.state_dir / "triggers" / "cron.log"


def lines(triggers: Sequence[Trigger], place: CronPlace) -> list[str]:
    """Return a crontab line for each cron trigger. Raises InvalidSettings for a trigger that a crontab cannot express."""
    return [_line(trigger, place) for trigger in triggers if trigger.type is TriggerType.CRON]


def _line(trigger: Trigger, place: CronPlace) -> str:
    if trigger.timezone is not None:
        raise InvalidSettings(
            f"trigger {trigger.name} has timezone {trigger.timezone}, but cron uses this machine's time zone; "
            f"remove the timezone, or use: drumbeat trigger serve"
        )
    store = () if place.store is None else ("--store", place.store)
    fire = (sys.executable, "-m", "drumbeat", "trigger", "fire", trigger.name, "--file", str(place.file), *store)
    variables = {**place.variables, place.state_variable: str(place.state_dir)}
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    command = f"cd {shlex.quote(str(place.folder))} && {settings} {shlex.join(fire)} >> {shlex.quote(str(place.log))} 2>&1"
    if "\n" in command:
        raise InvalidSettings(f"expected paths and settings without line breaks, got {command!r}")
    escaped = command.replace("%", r"\%")  # cron ends a command at an unescaped %
    return f"{trigger.schedule} {escaped} {_mark(place.file)}"


def _mark(file: Path) -> str:
    return f"{_MARK} {file}".replace("%", r"\%")


def merged(crontab: str, ours: Sequence[str], file: Path) -> str:
    """Return a crontab in which ``ours`` replaces the old lines of a triggers file. All other lines stay unchanged."""
    theirs = [line for line in crontab.splitlines() if not line.endswith(f" {_mark(file)}")]
    return "".join(f"{line}\n" for line in (*theirs, *ours))


def installed(crontab: str, file: Path) -> list[str]:
    """Return the lines of a crontab that belong to a triggers file."""
    return [line for line in crontab.splitlines() if line.endswith(f" {_mark(file)}")]


async def install(triggers: Sequence[Trigger], place: CronPlace) -> Sequence[str]:
    """Put a file's cron triggers into the user's crontab, replacing the file's old lines. Returns the new lines."""
    ours = lines(triggers, place)
    private_append(place.log).close()
    await _replace(ours, place.file)
    return ours


async def remove(file: Path) -> Sequence[str]:
    """Remove a file's lines from the user's crontab. Returns the removed lines."""
    removed = installed(await _read(), file)
    if removed:
        await _replace((), file)
    return removed


async def _replace(ours: Sequence[str], file: Path) -> None:
    before = await _read()
    after = merged(before, ours, file)
    if after != before:
        await _write(after)


async def _read() -> str:
    code, output, error = await _crontab("-l")
    if code and "no crontab" not in error.lower():
        raise InvalidInput(f"expected crontab -l to list the crontab, got exit code {code}: {error.strip()}")
    return "" if code else output


async def _write(text: str) -> None:
    code, _, error = await _crontab("-", text=text)
    if code:
        raise InvalidInput(f"expected crontab to accept the new lines, got exit code {code}: {error.strip()}")


async def _crontab(argument: str, text: str = "") -> tuple[int, str, str]:
    command = ["crontab", argument]
    try:
        done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, timeout=_TIMEOUT)
    except FileNotFoundError as exc:
        raise InvalidInput("the command crontab was not found; install cron, or use: drumbeat trigger serve") from exc
    except subprocess.TimeoutExpired as exc:
        raise InvalidInput(f"expected {' '.join(command)} to end within {_TIMEOUT:g} s, but it still runs") from exc
    return done.returncode, done.stdout, done.stderr
