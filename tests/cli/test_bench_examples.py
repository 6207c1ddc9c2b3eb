"""The first steps as the command line and the README tell them: in an empty folder, each command as it is written."""

import re
from pathlib import Path

import pytest

from cli.given import Said, ran
from drumbeat.cli.bench_examples import PREPARE, example_templates

ROOT = Path(__file__).parents[2]
NAMES = ["bounded-qps.yaml", "ci-gate.yaml", "find-max.yaml", "fixed.yaml"]


def commands(text: str) -> list[list[str]]:
    """What is to be typed, without the program's name."""
    return [line.split()[1:] for line in re.findall(r"^(?:  |\$ )(drumbeat .+?)(?:;.*)?$", text, re.MULTILINE)]


def test_examples_are_written_and_say_what_to_prepare(tmp_path: Path) -> None:
    said = ran("bench", "examples", cwd=tmp_path)

    assert (said.code, said.errors) == (0, "")
    assert sorted(each.name for each in (tmp_path / "examples").iterdir()) == NAMES
    assert PREPARE.split()[1:] in commands(said.output)
    assert ran("bench", "examples", cwd=tmp_path) == said, "what is there already is left as it is"


def test_they_run_where_they_were_written_once_that_was_prepared(tmp_path: Path) -> None:
    written = ran("bench", "examples", "mine", cwd=tmp_path)
    plan = ("bench", "plan", "mine/fixed.yaml", "--set", "workload.scale=0.01", "--store", "sqlite:///drumbeat.db")
    too_soon = ran(*plan, cwd=tmp_path)
    prepared = ran(*PREPARE.split()[1:], "--scale", "0.01", cwd=tmp_path)

    plans = [ran("bench", "plan", f"mine/{name}", *plan[3:], cwd=tmp_path) for name in NAMES]

    assert "drumbeat bench run mine/find-max.yaml" in written.output
    assert too_soon.code == 1
    assert "drumbeat bench prepare" in too_soon.output
    assert [prepared.code, *(each.code for each in plans)] == [0] * 5, plans


def test_a_file_that_somebody_changed_is_not_lost(tmp_path: Path) -> None:
    changed = tmp_path / "examples" / "fixed.yaml"
    ran("bench", "examples", cwd=tmp_path)
    changed.write_text("name: mine")

    refused = ran("bench", "examples", cwd=tmp_path)
    kept = changed.read_text()
    forced = ran("bench", "examples", "--force", cwd=tmp_path)

    assert (refused.code, kept, forced.code) == (1, "name: mine", 0)
    assert "has files that differ from the examples: fixed.yaml;" in refused.errors
    assert changed.read_text() == example_templates()["fixed.yaml"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "examples").write_text("")

    said: Said = ran("bench", "examples", cwd=tmp_path)

    assert said.code == 1
    assert "choose another folder" in said.errors


@pytest.mark.parametrize("page", ["README.md", "docs/bench.md"])
def test_a_page_writes_the_examples_and_prepares_before_it_runs_them(page: str) -> None:
    typed = commands((ROOT / page).read_text(encoding="utf-8"))
    runs = [words for words in typed if words[:2] == ["bench", "run"] and words[2].startswith("examples/")]

    assert runs
    assert {words[2].removeprefix("examples/") for words in runs} <= set(NAMES)
    assert typed.index(["bench", "examples"]) < typed.index(PREPARE.split()[1:]) < typed.index(runs[0])
