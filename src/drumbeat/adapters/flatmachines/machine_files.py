"""Finds and reads the YAML or JSON files that define FlatMachines state machines, and makes the paths in them absolute."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.plain import read_json
from drumbeat.yaml_text import read_yaml

_ENDINGS = (".yml", ".yaml", ".json")


def find_machine(name: str, folder: Path) -> Path | None:
    """Find a state machine's file by its path or name in ``folder``, with or without the file ending; None if there is none."""
    given = folder / Path(name).expanduser()
    candidates = [given, *(given.with_name(given.name + ending) for ending in _ENDINGS)]
    return next((path.absolute() for path in candidates if path.is_file()), None)


def load_machine(file: Path) -> dict[str, Any]:
    """Read the YAML or JSON file that defines a FlatMachines state machine. Raises NotFound, InvalidInput."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as exc:
        raise NotFound(f"cannot read the state machine file {file}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise InvalidInput(f"expected the machine's file {file} to be UTF-8 text, got an invalid byte at {exc.start}") from exc
    found = read_json(text, str(file)) if file.suffix == ".json" else read_yaml(text, f"{file} to be YAML")
    if not isinstance(found, dict):
        raise InvalidInput(f"expected the machine's file {file} to contain a mapping, got {type(found).__name__}")
    return found


def find_inside(config: Mapping[str, Any], folder: Path, name: str, machines: Mapping[str, str]) -> Path | dict[str, Any]:
    """Find the state machine ``name`` that ``config`` uses: in ``machines`` (the option ``--machines``), in the config's own
    ``machines:``, or as a file in ``folder``. Raises NotFound."""
    if name in machines:
        return Path(machines[name])
    ref = (config.get("data", {}).get("machines") or {}).get(name)
    if isinstance(ref, dict):
        return ref
    found = find_machine(ref or name, folder)
    if found is None:
        raise NotFound(
            f"no machine {name!r}; name its file under 'machines' in the file of the machine that uses it, "
            f"or create {folder / name}.yml, or give --machines {name}=FILE"
        )
    return found


def absolute_refs(data: dict[str, Any], folder: Path) -> None:
    """Make the file paths in a state machine's ``data`` absolute: it may be copied into a machine of another folder."""
    machines = data.get("machines") or {}
    for name, ref in machines.items():
        if isinstance(ref, str):
            machines[name] = str((folder / Path(ref).expanduser()).absolute())
    agents = data.get("agents") or {}
    for name, ref in agents.items():
        if isinstance(ref, str):
            agents[name] = _file(ref, folder)
        elif isinstance(ref, dict) and isinstance(ref.get("ref"), str):
            ref["ref"] = _file(ref["ref"], folder)


def _file(ref: str, folder: Path) -> str:
    path = folder / Path(ref).expanduser()
    return str(path.absolute()) if path.is_file() else ref
