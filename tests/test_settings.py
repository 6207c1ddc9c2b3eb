"""Settings: what was given counts most, then the environment, then the file."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.retention import FOR_EVER, Retention
from drumbeat.core.store_url import PASSWORD_VARIABLE
from drumbeat.settings import (
    ENGINES_VARIABLE,
    RETENTION_VARIABLE,
    STATE_DIR_VARIABLE,
    STORE_VARIABLE,
    Settings,
    absolute,
    load_settings,
)
from drumbeat.store import open_store
from drumbeat.store.sql.store import SqlStore


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_anything_all_is_in_the_working_folder(here: Path) -> None:
    assert load_settings({}) == Settings(store=f"sqlite:///{here}/drumbeat.db", state_dir=here / ".drumbeat")


@pytest.mark.parametrize(
    ("given", "environment", "file", "expected"),
    [
        ("postgresql://given", "postgresql://env", "postgresql://file", "postgresql://given"),
        (None, "postgresql://env", "postgresql://file", "postgresql://env"),
        (None, "", "postgresql://file", "postgresql://file"),
        (None, None, "postgresql://file", "postgresql://file"),
        ("", "postgresql://env", None, ""),
    ],
)
def test_the_nearest_counts(here: Path, given: str | None, environment: str | None, file: str | None, expected: str) -> None:
    if file:
        (here / "drumbeat.toml").write_text(f'store = "{file}"\n')

    settings = load_settings({} if environment is None else {STORE_VARIABLE: environment}, store=given)

    assert settings.store == expected


def test_the_state_folder_is_made_absolute(here: Path) -> None:
    assert load_settings({STATE_DIR_VARIABLE: "somewhere"}).state_dir == here / "somewhere"
    assert load_settings({STATE_DIR_VARIABLE: "/else"}).state_dir == Path("/else")
    assert load_settings({STATE_DIR_VARIABLE: "~/state"}).state_dir == Path("~/state").expanduser()


def test_a_file_may_set_everything(here: Path) -> None:
    file = here / "other.toml"
    file.write_text('store = "sqlite:///x.db"\nstate_dir = "state"\nretention = "jobs=30d"\n')

    kept = Retention(jobs=timedelta(days=30))
    assert load_settings({}, file) == Settings(store=f"sqlite:///{here}/x.db", state_dir=here / "state", retention=kept)
    assert load_settings({RETENTION_VARIABLE: "off"}, file).retention == FOR_EVER


def test_children_are_told_the_retention_that_was_set(here: Path) -> None:
    usual, told = load_settings({STORE_VARIABLE: "x"}), load_settings({STORE_VARIABLE: "x", RETENTION_VARIABLE: "off"})

    assert (usual.retention, usual.for_children()) == (None, {STORE_VARIABLE: "x"})
    assert told.for_children() == {STORE_VARIABLE: "x", RETENTION_VARIABLE: "off"}
    assert told.public_variables() == {RETENTION_VARIABLE: "off"}


@pytest.mark.parametrize(
    ("store", "is_sent"),
    [
        ("snowflake://me@account/db/s?warehouse=w", True),
        ("snowflake://me@account/db?private_key_file=/k.p8", True),  # the passphrase of the key
        ("redis://db/0", True),
        ("rediss://me@db", True),
        ("snowflake://me:pw@account/db/s", False),  # has its own
        ("redis://:pw@db/0", False),
        ("postgresql://me@db/x", False),  # does not read it
        ("sqlite:///x.db", False),
    ],
)
def test_children_get_the_password_of_a_store_that_reads_it(here: Path, store: str, is_sent: bool) -> None:
    settings = load_settings({STORE_VARIABLE: store, PASSWORD_VARIABLE: "secret-4711"})

    assert settings.for_children().get(PASSWORD_VARIABLE) == ("secret-4711" if is_sent else None)
    assert PASSWORD_VARIABLE not in settings.public_variables()
    assert "secret-4711" not in repr(settings)
    assert PASSWORD_VARIABLE not in load_settings({STORE_VARIABLE: store}).for_children()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("store =", "expected TOML in drumbeat.toml, got invalid TOML"),
        ("colour = 'red'", "unknown setting 'colour' in drumbeat.toml; expected only store, state_dir, retention"),
        ("store = 5", "expected the setting store in drumbeat.toml to be text, got 5"),
        ("[store]\nurl = 'x'", "expected the setting store in drumbeat.toml to be text"),
    ],
)
def test_a_wrong_file_is_said(here: Path, text: str, said: str) -> None:
    (here / "drumbeat.toml").write_text(text)

    with pytest.raises(InvalidSettings, match=said):
        load_settings({})


def test_a_file_that_is_no_text_is_said(here: Path) -> None:
    (here / "drumbeat.toml").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(InvalidSettings, match="expected TOML"):
        load_settings({})


def test_a_file_that_cannot_be_read_is_said(here: Path) -> None:
    (here / "drumbeat.toml").mkdir()

    with pytest.raises(InvalidSettings, match="fix or remove it"):
        load_settings({})


def test_settings_show_no_store() -> None:
    assert "hunter2" not in repr(load_settings({STORE_VARIABLE: "postgresql://u:hunter2@h/db"}))


@pytest.mark.parametrize(
    "url", ["", "sqlite:", "sqlite:///", "sqlite://x", "postgresql://u:p%2F@h/db?schema=x", "memory:", "nonsense"]
)
def test_what_is_no_relative_file_is_left_alone(url: str) -> None:
    assert absolute(url) == url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///x.db", "sqlite:///{here}/x.db"),
        ("sqlite:///a/../x.db?synchronous=normal", "sqlite:///{here}/a/../x.db?synchronous=normal"),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db"),
        ("sqlite:///a%20b.db", "sqlite:///{here}/a%20b.db"),
        ("sqlite:///~/x.db", "sqlite:///{home}/x.db"),
    ],
)
def test_a_file_means_the_same_from_everywhere(here: Path, monkeypatch: pytest.MonkeyPatch, url: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")

    assert absolute(url) == expected.format(here=here, home="/home/me")
    assert absolute(absolute(url)) == absolute(url)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {STORE_VARIABLE: "sqlite:///~nobody.here/x.db"},
            "expected the path of a SQLite file in the store's URL, got ~nobody.here/x.db: there is no user 'nobody.here'",
        ),
        (
            {ENGINES_VARIABLE: "~nobody.here/e.toml"},
            f"expected the path of an engines file in {ENGINES_VARIABLE}, got ~nobody.here/e.toml: there is no user",
        ),
    ],
)
def test_the_home_folder_of_an_unknown_user_is_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSettings, match=re.escape(said)):
        load_settings(environment)


@pytest.mark.parametrize("folder", ["with space", "100%", "why?", "a#b", "grün"])
def test_a_folder_may_have_any_name(here: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """A URL made from a working folder is read back as that folder, whatever is in its name."""
    (here / folder).mkdir()
    monkeypatch.chdir(here / folder)

    store = open_store(load_settings({}).store)

    assert isinstance(store, SqlStore)
    assert store.database.location == f"sqlite:///{here / folder / 'drumbeat.db'}"
