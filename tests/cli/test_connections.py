"""drumbeat connection: kept, shown without its password, changed, tested, removed."""

import json
from pathlib import Path

import pytest

from cli.given import Said, drumbeat, invoke, piped
from drumbeat.core.errors import InvalidInput, InvalidSettings, NotFound

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
OTHER = "OTg3NjU0MzIxMDk4NzY1NDMyMTA5ODc2NTQzMjEwOTg="
URL = "postgresql://bench@127.0.0.1:1/load"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DRUMBEAT_KEY", KEY)
    return f"sqlite:///{tmp_path}/drumbeat.db"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password, as standard input has it."""
    monkeypatch.setattr("drumbeat.cli.connections._password", lambda: "open-sesame")


def listed(store: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(invoke("connection", "list", "--json", store=store).output)
    return found


@pytest.mark.usefixtures("typed")
def test_a_connection_is_kept_and_shown_without_its_password(store: str) -> None:
    made = invoke("connection", "add", "orders", URL, "--password", "--description", "the orders", store=store)
    shown = invoke("connection", "list", store=store)

    assert "password encrypted" in made.output
    assert "encrypted with key" in shown.output
    assert "open-sesame" not in made.output + shown.output
    assert [(each["name"], each["url"], each["has_password"]) for each in listed(store)] == [("orders", URL, True)]


@pytest.mark.usefixtures("typed")
def test_it_is_changed_made_the_default_and_removed(store: str) -> None:
    invoke("connection", "add", "orders", URL, store=store)

    changed = invoke("connection", "change", "orders", "--password", "--description", "new", "--default", store=store)

    assert "the default" in changed.output
    assert [(each["description"], each["is_default"], each["has_password"]) for each in listed(store)] == [("new", True, True)]
    with pytest.raises(InvalidInput, match="expected the password again"):
        invoke("connection", "change", "orders", "--url", "postgresql://bench@other/load", store=store)
    assert invoke("connection", "rm", "orders", store=store).code == 0
    assert listed(store) == []
    with pytest.raises(NotFound):
        invoke("connection", "rm", "orders", store=store)


@pytest.mark.usefixtures("typed")
def test_its_password_is_resealed_with_a_new_key(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("connection", "add", "orders", URL, "--password", store=store)
    before = listed(store)[0]["key_id"]
    monkeypatch.setenv("DRUMBEAT_KEY", f"{OTHER},{KEY}")

    assert "orders" in invoke("connection", "reseal", store=store).output
    assert "already" in invoke("connection", "reseal", store=store).output
    assert listed(store)[0]["key_id"] != before


def test_one_is_tested_and_its_tables_told(store: str, tmp_path: Path) -> None:
    invoke("connection", "add", "here", store, store=store)
    invoke("connection", "add", "gone", f"sqlite:///{tmp_path}/gone.db", store=store)

    assert invoke("connection", "test", "here", store=store).code == 0
    assert json.loads(invoke("connection", "test", "gone", "--json", store=store).output)["ok"] is False
    assert invoke("connection", "test", "gone", store=store).code == 1
    assert "connections" in invoke("connection", "tables", "here", store=store).output
    assert "description" in invoke("connection", "tables", "here", "connections", store=store).output


def test_without_a_key_no_password_is_taken(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRUMBEAT_KEY")
    monkeypatch.setattr("drumbeat.cli.connections._password", lambda: "open-sesame")

    with pytest.raises(InvalidSettings, match="openssl"):
        invoke("connection", "add", "orders", URL, "--password", store=store)


def test_the_password_is_asked_for_and_never_an_argument(tmp_path: Path) -> None:
    said: Said = drumbeat("connection", "add", "orders", URL, "--password", cwd=tmp_path, DRUMBEAT_KEY=KEY)

    assert said.code == 1
    assert "expected a password, got none" in said.errors


def test_a_password_that_is_no_text_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="expected the password on standard input to be UTF-8 text"):
        piped(b"\xff\xfe\n", "connection", "add", "orders", URL, "--password", store=url)


def test_the_sql_of_a_template_is_shown(tmp_path: Path) -> None:
    target, store = f"sqlite:///{tmp_path}/target.db", f"sqlite:///{tmp_path}/drumbeat.db"
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"name": "t", "target": {"url": target}, "workload": {"standard": "read-only", "scale": 0.01}}))
    invoke("bench", "prepare", target, "--workload", "read-only", "--scale", "0.01")
    invoke("bench", "template", "add", str(file), store=store)

    assert "SELECT" in invoke("bench", "template", "sql", "t", store=store).output
    shown = json.loads(invoke("bench", "template", "sql", "t", "--json", store=store).output)
    assert all(each["statements"] for each in shown)
