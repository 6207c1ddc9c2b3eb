"""Read and validate triggers.yml; an error names every wrong or unknown key."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from drumbeat.core.cron import parse_schedule, zone
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.core.plain import short_repr
from drumbeat.triggers.model import WORK_ADDED, BeatKind, Trigger, TriggerType, WorkerMachine, unused_input
from drumbeat.user_path import user_path
from drumbeat.yaml_text import read_yaml

_SPELLINGS = {
    "in_loop": TriggerType.IN_LOOP,
    "inline": TriggerType.IN_LOOP,
    "lambda": TriggerType.SERVERLESS,
    "k3s": TriggerType.SERVERLESS,
}
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]  #: the name of an environment variable


Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]  #: a name that the states of a FlatMachines machine use
_BEATS = f"{', '.join([*BeatKind][:-1])} or {[*BeatKind][-1]}"
_MACHINE_FILES = (".yml", ".yaml", ".json")


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Input(_Block):
    """The key ``input`` of a trigger: arguments for its beat."""

    pool_id: Annotated[str, Field(min_length=1)] | None = None
    max_workers: Annotated[int, Field(ge=0)] | None = None
    stale_threshold_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None


class Entry(_Block):
    """The keys that every trigger in triggers.yml can have."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    type: TriggerType
    machine: str = BeatKind.CHECKER.value
    machines: dict[Word, str] = {}
    hooks: dict[Word, str] = {}
    input: Input = Input()

    @field_validator("machine")
    @classmethod
    def _can_be_run(cls, value: str) -> str:
        if value not in set(BeatKind) and not value.endswith(_MACHINE_FILES):
            raise ValueError(
                f"expected {_BEATS}, or the file of a FlatMachines machine that workers run "
                f"({', '.join(_MACHINE_FILES)}), got {value!r}"
            )
        return value


class Scheduled(Entry):
    """An entry of triggers.yml that can have a schedule."""

    schedule: str | None = None
    timezone: str | None = None

    @field_validator("schedule", "timezone")
    @classmethod
    def _can_be_read(cls, value: str | None, info: Any) -> str | None:
        try:
            if value is not None:
                parse_schedule(value) if info.field_name == "schedule" else zone(value)
        except InvalidSettings as exc:
            raise ValueError(str(exc)) from exc
        return value


class Cron(Scheduled):
    schedule: str


class Webhook(Entry):
    secret_variable: Variable


class OnWork(Entry):
    on: Literal["work_added"] = WORK_ADDED  # type: ignore[assignment]


class Subprocess(OnWork):
    keep_warm_seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None


class Serverless(Scheduled):
    secret_variable: Variable | None = None


_KINDS: Mapping[TriggerType, type[Entry]] = {
    TriggerType.CRON: Cron,
    TriggerType.WEBHOOK: Webhook,
    TriggerType.SUBPROCESS: Subprocess,
    TriggerType.IN_LOOP: OnWork,
    TriggerType.SERVERLESS: Serverless,
}


def load_triggers(file: Path) -> Sequence[Trigger]:
    """Read the triggers of a file. Raises InvalidSettings that names every wrong key."""
    try:
        found = parse_triggers(file.read_text(encoding="utf-8"))
        return [_located(trigger, file.absolute().parent) for trigger in found]
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidSettings(f"cannot read triggers from {file}: {exc}") from exc
    except InvalidSettings as exc:
        raise InvalidSettings(f"{file}: {exc}") from None


def parse_triggers(text: str) -> Sequence[Trigger]:
    """Read the triggers of a YAML text. Raises InvalidSettings that names every wrong key."""
    triggers: list[Trigger] = []
    problems: list[str] = []
    for number, entry in enumerate(_entries(text)):
        try:
            triggers.append(_trigger(entry))
        except InvalidSettings as exc:
            problems.append(f"{_place(number, entry)}: {exc}")
    names = Counter(trigger.name for trigger in triggers)
    problems += [f"{count} triggers are named {name!r}; expected each name once" for name, count in names.items() if count > 1]
    if problems:
        raise InvalidSettings("; ".join(problems))
    return triggers


def _entries(text: str) -> Sequence[Any]:
    try:
        found = read_yaml(text, "YAML")
    except InvalidInput as exc:
        raise InvalidSettings(str(exc)) from None
    if not isinstance(found, Mapping):
        raise InvalidSettings(f"expected a list under the key 'triggers', got {type(found).__name__}")
    if unknown := [key for key in found if key != "triggers"]:
        raise InvalidSettings(f"{unknown[0]}: there is no such key; expected only 'triggers'")
    if not isinstance(entries := found.get("triggers") or [], list):
        raise InvalidSettings(f"triggers: expected a list, got {type(entries).__name__}")
    return entries


def _place(number: int, entry: Any) -> str:
    name = entry.get("name") if isinstance(entry, Mapping) else None
    return f"triggers[{number}] ({name})" if name else f"triggers[{number}]"


def _trigger(entry: Any) -> Trigger:
    if not isinstance(entry, Mapping):
        raise InvalidSettings(f"expected a trigger as keys and values, got {short_repr(entry)}")
    fields = {"on" if key is True else str(key): value for key, value in entry.items()}  # YAML 1.1 reads a bare ``on`` as true
    fields["type"] = kind = _kind(fields.get("type"))
    try:
        return _value(_KINDS[kind].model_validate(fields))
    except ValidationError as exc:
        raise InvalidSettings(", ".join(_problem(each, _KINDS[kind]) for each in exc.errors(include_url=False))) from None


def _kind(given: Any) -> TriggerType:
    word = str(given).lower()
    if word not in {*TriggerType, *_SPELLINGS}:
        raise InvalidSettings(f"type: expected one of {', '.join([*TriggerType, *_SPELLINGS])}, got {short_repr(given)}")
    return _SPELLINGS.get(word) or TriggerType(word)


def _problem(error: Mapping[str, Any], kind: type[Entry]) -> str:
    path = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        known = Input if error["loc"][0] == "input" else kind
        return f"{path}: there is no such key; expected one of {', '.join(known.model_fields)}"
    if error["type"] == "missing":
        return f"{path}: this key is required"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{path}: {message}" if error["type"] == "value_error" else f"{path}: {message}, got {short_repr(error['input'])}"


def _located(trigger: Trigger, folder: Path) -> Trigger:
    """Return the trigger with its files' paths resolved relative to triggers.yml. Raises InvalidSettings if one is missing."""
    worker = trigger.worker
    if worker is None:
        return trigger
    expected = f"trigger {trigger.name}: machine: expected the path of a FlatMachines file"
    found = replace(
        worker,
        file=str(folder / user_path(worker.file, expected)),
        machines={name: str(folder / user_path(each, expected)) for name, each in worker.machines.items()},
        hooks={name: _hook(each, folder) for name, each in worker.hooks.items()},
    )
    for name in (found.file, *found.machines.values()):
        if not Path(name).is_file():
            raise InvalidSettings(f"trigger {trigger.name}: machine: expected a FlatMachines file {name}, got none")
    return replace(trigger, worker=found)


def _hook(target: str, folder: Path) -> str:
    module, mark, factory = target.rpartition(":")
    if not module.endswith(".py"):
        return target
    return f"{folder / user_path(module, 'hooks: expected the path of a Python file')}{mark}{factory}"


def _worker(entry: Entry) -> WorkerMachine | None:
    if entry.machine not in set(BeatKind):
        if entry.input.pool_id is None:
            raise InvalidSettings(
                "input.pool_id: expected the pool whose workers run this FlatMachine, got none; add it below input"
            )
        return WorkerMachine(file=entry.machine, machines=entry.machines, hooks=entry.hooks)
    if entry.machines or entry.hooks:
        raise InvalidSettings(
            "'machines' and 'hooks' need a FlatMachines file in the key 'machine'; remove both keys, or set 'machine' to a file"
        )
    return None


def _value(entry: Entry) -> Trigger:
    given, worker = entry.input, _worker(entry)
    machine = BeatKind.CHECKER if worker else BeatKind(entry.machine)
    if unused := unused_input(machine, given.max_workers, given.stale_threshold_seconds):
        raise InvalidSettings(f"input.{unused}")
    lost_after, keep_warm = given.stale_threshold_seconds, getattr(entry, "keep_warm_seconds", None)
    return Trigger(
        name=entry.name,
        type=entry.type,
        machine=machine,
        worker=worker,
        pool_id=given.pool_id,
        max_workers=given.max_workers,
        lost_after=None if lost_after is None else timedelta(seconds=lost_after),
        schedule=getattr(entry, "schedule", None),
        timezone=getattr(entry, "timezone", None),
        secret_variable=getattr(entry, "secret_variable", None),
        keep_warm=None if keep_warm is None else timedelta(seconds=keep_warm),
    )
