"""drumbeat store copy: what it prints, what it refuses, and its exit codes."""

import json
from pathlib import Path

import pytest

from cli.given import Said, bare_pool, invoke, make_store, ran, scene
from cli.test_store_commands import write
from drumbeat.core.errors import InvalidInput, Refused, StoreNotReady


@pytest.fixture
def quiet(tmp_path: Path) -> str:
    """A store with a pool that nobody uses."""
    url = f"sqlite:///{tmp_path}/quiet.db"
    make_store(url, bare_pool)
    return url


@pytest.fixture
def copy(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/copy.db"


def test_a_copy_is_told_table_by_table(quiet: str, copy: str) -> None:
    said = invoke("store", "copy", quiet, copy)

    lines = [line.split() for line in said.output.splitlines()]
    assert (said.code, said.errors) == (0, "")
    assert lines[:2] == [["table", "rows", "ok"], ["pools", "1", "yes"]]
    assert said.output.endswith(f"copied 1 rows of {len(lines) - 2} tables from {quiet} to {copy}: equal\n")
    assert invoke("pools", "list", store=copy).output == invoke("pools", "list", store=quiet).output


def test_a_copy_is_json_if_asked(quiet: str, copy: str) -> None:
    report = json.loads(invoke("store", "copy", quiet, copy, "--json").output)

    assert (report["source"], report["target"], report["ok"], report["changed"]) == (quiet, copy, True, False)
    assert (report["kept_rows"], report["restarted"]) == (0, [])
    assert report["tables"][0] | {"checksum": "", "target_checksum": ""} == {
        "table": "pools",
        "rows": 1,
        "target_rows": 1,
        "checksum": "",
        "target_checksum": "",
        "ok": True,
    }


def test_a_store_in_use_is_refused_in_one_line_and_copied_with_live(tmp_path: Path, url: str, copy: str) -> None:
    make_store(url, scene)

    refused = ran("store", "copy", url, copy, cwd=tmp_path)
    asked = ran("store", "copy", "--live", url, copy, cwd=tmp_path)

    assert (refused.code, refused.output, refused.errors.count("\n")) == (1, "", 1)
    assert "is in use by 2 workers (p/w-busy, p/w-new); their later writes would be missing" in refused.errors
    assert (asked.code, asked.errors) == (0, "")


def test_a_copy_that_differs_names_its_table_and_ends_with_1(tmp_path: Path, quiet: str, copy: str) -> None:
    invoke("store", "copy", quiet, copy)
    write(copy, "INSERT INTO notes (name, value, updated_at) VALUES ('x', '{}', 0)")

    said = ran("store", "copy", "--verify-only", quiet, copy, cwd=tmp_path)
    document = ran("store", "copy", "--verify-only", "--json", quiet, copy, cwd=tmp_path)

    assert (said.code, document.code) == (1, 1)
    assert said.errors == document.errors
    assert f"{copy} is not equal to {quiet}: the table notes differs; if the copy is not in use, copy to" in said.errors
    assert "notes            0     no: 1 rows in the target" in said.output
    assert [each["table"] for each in json.loads(document.output)["tables"] if not each["ok"]] == ["notes"]


def test_an_environment_variable_may_hold_the_url(tmp_path: Path, quiet: str, copy: str) -> None:
    assert ran("store", "copy", "DRUMBEAT_STORE", "NEW_STORE", cwd=tmp_path, DRUMBEAT_STORE=quiet, NEW_STORE=copy).code == 0
    (tmp_path / "drumbeat.toml").write_text(f'store = "{quiet}"')
    assert ran("store", "copy", "--verify-only", "DRUMBEAT_STORE", copy, cwd=tmp_path).code == 0
    with pytest.raises(InvalidInput, match="a store's URL in the environment variable NO_STORE, but it is not set"):
        invoke("store", "copy", quiet, "NO_STORE")


def test_no_password_is_shown(tmp_path: Path, quiet: str, postgres_url: str) -> None:
    secret = postgres_url.replace("postgres@", "postgres:s3cret@")

    said = [ran("store", "copy", quiet, secret, cwd=tmp_path), ran("store", "copy", quiet, secret, "--json", cwd=tmp_path)]

    assert [each.code for each in said] == [0, 1]
    assert "s3cret" not in "".join(each.output + each.errors for each in said)
    assert "postgresql://127.0.0.1" in said[0].output


@pytest.mark.parametrize("given", ["redis://h", "memory:"])
def test_what_cannot_be_copied_is_said(quiet: str, given: str) -> None:
    with pytest.raises(InvalidInput, match="expected the URL of a SQLite, PostgreSQL or Snowflake store, got a"):
        invoke("store", "copy", quiet, given)


def test_a_store_with_rows_is_not_copied_to(quiet: str, empty: str, copy: str) -> None:
    invoke("store", "copy", quiet, copy)

    with pytest.raises(Refused, match="expected an empty store"):
        invoke("store", "copy", empty, copy)


def test_nothing_is_compared_with_a_store_without_tables(quiet: str, copy: str) -> None:
    write(copy, "CREATE TABLE theirs (x)")

    with pytest.raises(StoreNotReady, match="found no tables of Drumbeat; run: drumbeat store copy, without --verify-only"):
        invoke("store", "copy", "--verify-only", quiet, copy)


def test_a_warning_says_that_the_source_was_changed_meanwhile(quiet: str, copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from drumbeat.store.sql import copying

    verified = copying.StoreCopy._verified

    async def slowly(self: copying.StoreCopy, *given: object) -> object:
        write(quiet, "UPDATE pools SET next_event = next_event + 1")
        return await verified(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(copying.StoreCopy, "_verified", slowly)

    said = invoke("store", "copy", quiet, copy)

    assert said.code == 0
    assert said.errors.startswith(f"warning: {quiet} was changed while it was copied; the copy is of 20")


def test_its_help_says_that_it_continues() -> None:
    said: Said = invoke("store", "copy", "--help")

    assert "interrupted, run it again: it continues" in " ".join(said.output.split())
