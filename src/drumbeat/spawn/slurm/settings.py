"""Settings: which resources a worker's job requests from a Slurm cluster, and where its files are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from drumbeat.core.errors import InvalidSettings
from drumbeat.spawn.slurm.script import DRAIN_SIGNAL

_OPTION: Final = re.compile(r"--([a-z][a-z-]*)(=[^\0\r\n]*)?")
_WORD: Final = re.compile(r"[^\s\0]*")
#: options of sbatch that the spawner sets itself; every abbreviation of them is refused, too
_RESERVED: Final = frozenset(
    {
        *("account", "array", "batch", "chdir", "cluster-constraint", "clusters", "comment", "constraint", "cpus-per-task"),
        *("error", "exclude", "export", "export-file", "get-user-env", "gres", "help", "hold", "input", "job-name", "mem"),
        *("no-requeue", "nodelist", "nodes", "ntasks", "open-mode", "output", "parsable", "partition", "qos", "quiet"),
        *("requeue", "signal", "test-only", "time", "usage", "version", "wait", "wrap"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """What the job of each worker requests from Slurm. The commands sbatch, squeue and scancel run on this machine."""

    partition: str = ""  #: empty: the cluster's default
    account: str = ""  #: the account that is charged; empty: the user's default
    qos: str = ""  #: quality of service; empty: the default
    time_limit: timedelta | None = None  #: of a worker; None: the partition's
    notice: timedelta = timedelta(seconds=60)  #: how long before the time limit a worker is asked to finish; 0: never
    cpus: int = 1  #: for each worker
    memory: str = ""  #: for each worker, such as 4G; empty: the partition's default
    gpus: int = 0  #: for each worker
    gpu_type: str = ""  #: such as a100; empty: any
    constraint: str = ""  #: features that a node must have, such as "intel&ssd"
    nodelist: str = ""  #: nodes on which workers must run, such as node[1-4]
    exclude: str = ""  #: nodes on which workers must not run
    options: Sequence[str] = ()  #: more options for sbatch, each as --name or --name=value
    folder: Path = Path("~/.drumbeat/slurm")  #: for scripts, logs and locks, on a file system that all nodes share
    workdir: str = ""  #: the folder on the nodes in which workers run; empty: the home folder
    setup: Sequence[str] = ()  #: shell lines before each worker, such as "module load python"
    python: str = "python3"  #: the nodes' Python, in which Drumbeat is installed
    command: Sequence[str] = ()  #: precedes the worker's arguments; empty: PYTHON -m drumbeat worker
    programs: Path | None = None  #: the folder with sbatch, squeue and scancel; None: those in PATH
    slots: int | None = None  #: most jobs at once, of all stores that use the same folder; None: no limit
    price_per_hour: float = 0.0  #: of one worker
    timeout: timedelta = timedelta(seconds=30)  #: of one command of Slurm
    end_timeout: timedelta = timedelta(minutes=2)  #: how long a cancelled job may take to end; longer than KillWait
    settle: timedelta = timedelta(seconds=15)  #: after a start without an answer: how long its job may still appear
    usual_start: timedelta = timedelta(seconds=5)  #: typical time until a worker runs
    billing_granule: timedelta = timedelta(seconds=1)  #: the unit of time in which jobs are paid

    def __post_init__(self) -> None:
        """Raise InvalidSettings if no worker can be started with these settings."""
        for fails, expected_and_got in (
            (self.cpus < 1, f"cpus of 1 or more, got {self.cpus}"),
            (self.gpus < 0, f"gpus of 0 or more, got {self.gpus}"),
            (bool(self.gpu_type) and not self.gpus, f"gpus of 1 or more with gpu_type {self.gpu_type!r}, got 0"),
            (self.slots is not None and self.slots < 1, f"slots of 1 or more, got {self.slots}"),
            (self.price_per_hour < 0, f"a price_per_hour of 0 or more, got {self.price_per_hour}"),
            (not self.folder.expanduser().is_absolute(), f"an absolute path as folder, got {self.folder}"),
            (
                any(character in str(self.folder) for character in "\0\r\n\\"),
                f"a folder without \\ or line breaks, got {self.folder}",
            ),
        ):
            if fails:
                raise InvalidSettings(f"Slurm: expected {expected_and_got}")
        if self.time_limit is not None and self.time_limit <= max(self.notice, timedelta()):
            raise InvalidSettings(f"Slurm: expected a time_limit longer than notice ({self.notice}), got {self.time_limit}")
        for name in ("partition", "account", "qos", "memory", "gpu_type", "constraint", "nodelist", "exclude"):
            if not _WORD.fullmatch(value := getattr(self, name)):
                raise InvalidSettings(f"Slurm: expected {name} without spaces and line breaks, got {value!r}")
        for option in self.options:
            _check_option(option)

    @property
    def worker_command(self) -> tuple[str, ...]:
        """Return the command that precedes a worker's arguments."""
        return tuple(self.command) or (self.python, "-m", "drumbeat", "worker")

    @property
    def sbatch_options(self) -> list[str]:
        """Return the options of sbatch that say what a job needs."""
        words = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "time": _clock_time(self.time_limit) if self.time_limit else "",
            "signal": f"B:{DRAIN_SIGNAL}@{self.notice.total_seconds():.0f}" if self.notice else "",
            "cpus-per-task": str(self.cpus) if self.cpus > 1 else "",
            "mem": self.memory,
            "gres": ":".join(filter(None, ("gpu", self.gpu_type, str(self.gpus)))) if self.gpus else "",
            "constraint": self.constraint,
            "nodelist": self.nodelist,
            "exclude": self.exclude,
        }
        return [*(f"--{name}={value}" for name, value in words.items() if value), *self.options]


def _clock_time(span: timedelta) -> str:
    """Return a duration as sbatch reads it: hours:minutes:seconds."""
    minutes, seconds = divmod(round(span.total_seconds()), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _check_option(option: str) -> None:
    found = _OPTION.fullmatch(option)
    if found is None:
        raise InvalidSettings(f"Slurm: expected each entry of options as --name or --name=value, got {option!r}")
    name = found[1]
    if any(each.startswith(name) for each in _RESERVED):
        raise InvalidSettings(f"Slurm: expected options without --{name}, which Drumbeat sets itself; use the setting for it")
