"""deploy/Dockerfile: exact base images, no root, and everything that it copies exists and reaches the daemon."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "Dockerfile"
INSTRUCTIONS = frozenset({"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER", "WORKDIR"})


@pytest.fixture(scope="module")
def steps() -> Sequence[tuple[str, str]]:
    """The instructions of the file and their arguments; comments and line ends within them are left out."""
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def arguments(steps: Sequence[tuple[str, str]], name: str) -> Sequence[str]:
    return [rest for instruction, rest in steps if instruction == name]


def test_there_are_only_known_instructions(steps: Sequence[tuple[str, str]]) -> None:
    assert {name for name, _ in steps} <= INSTRUCTIONS


def test_the_base_image_has_a_version_and_can_be_chosen(steps: Sequence[tuple[str, str]]) -> None:
    name, _, base = arguments(steps, "ARG")[0].partition("=")

    assert (name, base) == ("BASE", "python:3.11-slim")
    stages = [re.fullmatch(r"(\S+) AS (\w+)", rest) for rest in arguments(steps, "FROM")]
    known = {found[2] for found in stages if found}
    assert all(found and (found[1] == "${BASE}" or found[1] in known) for found in stages)
    assert known == {"build", "runtime", "server", "worker"}
    assert "latest" not in FILE.read_text()


def test_nothing_runs_as_root_in_the_end(steps: Sequence[tuple[str, str]]) -> None:
    runtime = steps[[rest for _, rest in steps].index("${BASE} AS runtime") :]

    assert arguments(runtime, "USER") == ["10001:10001"]
    last_run = max(n for n, (name, _) in enumerate(runtime) if name in {"RUN", "COPY"})
    assert last_run < [name for name, _ in runtime].index("USER")


def test_the_entry_point_is_drumbeat_and_serve_has_a_health_check(steps: Sequence[tuple[str, str]]) -> None:
    assert arguments(steps, "ENTRYPOINT") == ['["drumbeat"]']
    assert arguments(steps, "CMD") == ['["serve", "--host", "0.0.0.0"]', '["--help"]']
    [check] = arguments(steps, "HEALTHCHECK")
    assert "/health" in check


def test_what_is_copied_exists_and_is_sent_to_the_daemon(steps: Sequence[tuple[str, str]]) -> None:
    sent = (ROOT / ".dockerignore").read_text().split("\n")
    copied = [word for rest in arguments(steps, "COPY") if "--from" not in rest for word in rest.split()[:-1]]

    assert "*" in sent
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in sent, name


def test_the_usual_extras_exist(steps: Sequence[tuple[str, str]]) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [extras] = [rest.partition("=")[2] for rest in arguments(steps, "ARG") if rest.startswith("EXTRAS=")]

    assert set(extras.split(",")) <= set(known)
    assert {"kubernetes", "postgres", "web", "bench"} <= set(extras.split(",")), "what the Helm chart needs"


def test_the_chart_runs_the_image_as_its_user(steps: Sequence[tuple[str, str]]) -> None:
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "drumbeat" / "values.yaml").read_text())

    assert arguments(steps, "USER") == [f"{values['runAsUser']}:{values['runAsUser']}"]
