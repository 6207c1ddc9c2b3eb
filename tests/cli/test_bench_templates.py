"""bench template: what is saved can be used, and what cannot be read or edited is refused in one line."""

import json
import re
import sys
import tempfile
from pathlib import Path

import pytest

from cli.given import Said, invoke, piped, ran
from drumbeat.core.errors import InvalidInput

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


@pytest.fixture
def saved(file: Path, empty: str) -> str:
    """A store with a template."""
    assert invoke("bench", "template", "add", str(file), store=empty).code == 0
    return empty


def editor(folder: Path, script: str) -> str:
    """The command of an editor that runs a shell script; the file to edit is its $2."""
    program = folder / "my editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f'"{program}" -w'


def edit(folder: Path, store: str, command: str) -> Said:
    return ran("bench", "template", "edit", "kept", cwd=folder, DRUMBEAT_STORE=store, EDITOR=command, VISUAL="")


def test_a_template_is_changed_in_an_editor_whose_command_is_quoted(tmp_path: Path, saved: str) -> None:
    said = edit(tmp_path, saved, editor(tmp_path, 'test "$1" = -w && sed -i s/read-only/write-only/ "$2"'))

    assert (said.code, said.output) == (0, "changed kept\n"), said
    assert standard(saved) == "write-only"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("nosuchprogram", "cannot start the editor 'nosuchprogram': No such file or directory; set EDITOR"),
        ('"vi', "expected EDITOR to be a command, got '\"vi': No closing quotation"),
        ("  ", "expected --file, --set or $EDITOR to change the template, got none of them"),
        ("false", "the editor 'false' exited with code 1; nothing was changed"),
    ],
)
def test_an_editor_that_cannot_be_used_is_an_error(tmp_path: Path, saved: str, command: str, words: str) -> None:
    assert words in complaint(edit(tmp_path, saved, command))


def test_a_text_saved_in_another_encoding_is_refused(tmp_path: Path, saved: str) -> None:
    said = edit(tmp_path, saved, editor(tmp_path, """printf '{"name": "f\\374r"}' > "$2\""""))

    assert "to be UTF-8 text, got an invalid byte at offset 11" in complaint(said)
    assert kept_file(said).read_bytes() == b'{"name": "f\xfcr"}'


def kept_file(said: Said) -> Path:
    """The file with the user's text, which the error names with the command that uses it."""
    found = re.search(
        r"your text is kept; to use it, run: drumbeat bench template edit kept --file (\S+/template\.json)$", said.errors
    )
    assert found is not None, said
    return Path(found[1])


def standard(store: str) -> str:
    """The workload of the template."""
    found: str = json.loads(invoke("bench", "template", "show", "kept", "--json", store=store).output)["config"]["workload"][
        "standard"
    ]
    return found


def test_a_change_that_somebody_else_made_meanwhile_is_not_overwritten(tmp_path: Path, saved: str) -> None:
    other = f'"{sys.executable}" -m drumbeat bench template edit kept --set workload.standard=mixed'
    script = editor(tmp_path, f"""sed -i 's/"name"/"description": "mine", "name"/; s/"description": null,//' "$2"; {other}""")

    said = edit(tmp_path, saved, script)

    assert "template 'kept' was changed by someone else meanwhile" in complaint(said)
    assert standard(saved) == "mixed"
    assert invoke("bench", "template", "edit", "kept", "--file", str(kept_file(said)), store=saved).code == 0
    assert standard(saved) == "read-only"


def test_a_text_that_is_no_valid_template_is_kept(tmp_path: Path, saved: str) -> None:
    said = edit(tmp_path, saved, editor(tmp_path, 'sed -i s/read-only/nonsense/ "$2"'))

    assert "the template is wrong at workload.standard" in complaint(said)
    assert "nonsense" in kept_file(said).read_text()
    assert standard(saved) == "read-only"


def test_no_file_is_left_when_the_text_was_saved_or_not_changed(
    tmp_path: Path, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    codes = [edit(tmp_path, saved, editor(tmp_path, script)).code for script in ('sed -i s/0.01/0.02/ "$2"', "exit 1")]

    assert (codes, list(folder.iterdir())) == ([0, 1], [])


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "byte order mark"])
def test_a_document_is_read_from_standard_input(empty: str, mark: bytes) -> None:
    said = piped(mark + json.dumps(DOCUMENT).encode(), "bench", "template", "add", "-", store=empty)

    assert said.output.startswith("saved kept as ")


@pytest.mark.parametrize("command", [["bench", "plan", "-"], ["bench", "template", "add", "-"]])
def test_standard_input_that_is_no_text_is_refused(empty: str, command: list[str]) -> None:
    with pytest.raises(InvalidInput, match="expected standard input to be UTF-8 text, got an invalid byte at offset 0"):
        piped(b"\xff\xfe", *command, store=empty)
