"""bench template: what is saved can be used, and what cannot be read or edited is refused in one line."""

import json
from pathlib import Path

import pytest

from cli.given import Said, invoke, ran

DOCUMENT = {"name": "kept", "target": {"url": "sqlite:///target.db"}, "workload": {"standard": "read-only", "scale": 0.01}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a template."""
    made = tmp_path / "t.json"
    made.write_text(json.dumps(DOCUMENT), encoding="utf-8")
    return made


def complaint(said: Said) -> str:
    """The one line a command complained with."""
    assert (said.code, said.output, said.errors.count("\n")) == (1, "", 1), said
    return said.errors


@pytest.mark.parametrize("name", ["two\nlines", "x" * 256])
def test_a_name_that_no_run_could_have_is_not_saved(tmp_path: Path, file: Path, empty: str, name: str) -> None:
    said = ran("bench", "template", "add", str(file), "--name", name, cwd=tmp_path, DRUMBEAT_STORE=empty)

    assert "the template is wrong at name" in complaint(said)
    assert json.loads(invoke("bench", "template", "list", "--json", store=empty).output) == []


def test_a_template_saved_under_another_name_can_be_shown_by_it(tmp_path: Path, file: Path, empty: str) -> None:
    said = ran("bench", "template", "add", str(file), "--name", "other", cwd=tmp_path, DRUMBEAT_STORE=empty)

    assert said.code == 0, said
    found = json.loads(invoke("bench", "template", "show", "other", "--json", store=empty).output)
    assert (found["name"], found["config"]["workload"]["standard"]) == ("other", "read-only")


def test_a_run_is_repeated_and_listed_though_its_template_was_removed(tmp_path: Path, file: Path, empty: str) -> None:
    target = f"sqlite:///{tmp_path}/target.db"
    invoke("bench", "prepare", target, "--workload", "read-only", "--scale", "0.01")
    file.write_text(json.dumps({**DOCUMENT, "target": {"url": target}}))
    invoke("bench", "template", "add", str(file), store=empty)
    [template] = json.loads(invoke("bench", "template", "list", "--json", store=empty).output)
    first = json.loads(invoke("bench", "run", "kept", "--detach", "--json", store=empty).output)["run_id"]
    invoke("bench", "template", "rm", "kept", store=empty)

    again = invoke("bench", "rerun", first, "--detach", "--json", store=empty)

    listed = json.loads(invoke("bench", "list", "--template", template["template_id"], "--json", store=empty).output)
    assert [row["run_id"] for row in listed] == [json.loads(again.output)["run_id"], first]
    assert "there is no template 'kept'" in complaint(
        ran("bench", "list", "--template", "kept", cwd=tmp_path, DRUMBEAT_STORE=empty)
    )
