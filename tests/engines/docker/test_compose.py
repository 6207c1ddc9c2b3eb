"""deploy/compose.yaml fits the schema of the Compose specification that is in Debian's package of docker-compose."""

import json
from pathlib import Path

import jsonschema_rs
import yaml

from servers import debian

FILE = Path(__file__).parents[3] / "deploy" / "compose.yaml"


def test_the_compose_file_fits_the_specification(tmp_path: Path) -> None:
    [path] = debian.fetched(tmp_path, ["docker-compose"]).rglob("compose_spec.json")
    schema = json.loads(path.read_text())
    schema["properties"].setdefault("name", {"type": "string"})  # the specification has it since 2021, later than the package
    given = yaml.safe_load(FILE.read_text(encoding="utf-8"))

    problems = [f"{error.instance_path}: {error.message}" for error in jsonschema_rs.validator_for(schema).iter_errors(given)]

    assert problems == []
