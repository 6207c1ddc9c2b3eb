"""From a URL to a store: each form, and each wrong one in one clear line without its secrets."""

import sqlite3
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from drumbeat.core.errors import DrumbeatError, InvalidSettings
from drumbeat.store import Store, open_store
from drumbeat.store.memory import MemoryStore
from drumbeat.store.sql.postgres import PostgresDatabase
from drumbeat.store.sql.snowflake import SnowflakeDatabase
from drumbeat.store.sql.snowflake_sign_in import SnowflakeSignIn
from drumbeat.store.sql.sqlite import SqliteDatabase
from drumbeat.store.sql.store import SqlStore
from servers.postgres import PostgresServer


def sqlite_of(url: str) -> SqliteDatabase:
    store = open_store(url)
    assert isinstance(store, SqlStore)
    assert isinstance(store.database, SqliteDatabase)
    return store.database


def sign_in_of(store: Store) -> SnowflakeSignIn:
    assert isinstance(store, SqlStore)
    assert isinstance(store.database, SnowflakeDatabase)
    return store.database.sessions._sign_in


def postgres_of(url: str) -> PostgresDatabase:
    store = open_store(url)
    assert isinstance(store, SqlStore)
    assert isinstance(store.database, PostgresDatabase)
    return store.database


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("sqlite:///drumbeat.db", "sqlite:///drumbeat.db"),
        ("sqlite:////var/lib/x.db", "sqlite:////var/lib/x.db"),
        ("SQLite:///x.db", "sqlite:///x.db"),
        ("sqlite:///a%20b%3F.db?busy_timeout=1", "sqlite:///a b?.db"),
        ("sqlite:///a#b.db", "sqlite:///a#b.db"),
    ],
)
def test_a_sqlite_url_names_a_file(url: str, location: str) -> None:
    assert sqlite_of(url).location == location


def test_a_sqlite_url_carries_options() -> None:
    database = sqlite_of("sqlite:///x.db?synchronous=normal&busy_timeout=2.5")

    assert (database._synchronous, database._busy_timeout) == ("NORMAL", timedelta(seconds=2.5))


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://u@h/db", "postgresql://h/db (schema drumbeat)"),
        ("postgres://u:pw@h:6432/db", "postgresql://h:6432/db (schema drumbeat)"),
        ("postgresql://u:p%40w@h/db?schema=other", "postgresql://h/db (schema other)"),
        ("postgresql://u:p@w@h/db", "postgresql://h/db (schema drumbeat)"),
        ("postgresql://u@[::1]:5432/db", "postgresql://[::1]:5432/db (schema drumbeat)"),
        ("postgresql://u@one:1,two:2/db", "postgresql://one:1,two:2/db (schema drumbeat)"),
        ("postgresql:///db", "postgresql://localhost/db (schema drumbeat)"),
        ("postgresql:///db?host=/tmp&user=me", "postgresql://localhost/db (schema drumbeat)"),
    ],
)
def test_a_postgresql_url_names_a_database_and_shows_no_user(url: str, location: str) -> None:
    assert postgres_of(url).location == location


def test_a_postgresql_url_carries_our_options_and_leaves_the_drivers_alone() -> None:
    database = postgres_of("postgresql://u@h/db?connections=8&command_timeout=2&connect_timeout=1.5&schema=s&sslmode=disable")

    assert database._url == "postgresql://u@h/db?sslmode=disable"
    assert (database._connections, database._command_timeout, database._connect_timeout) == (8, 2.0, 1.5)


def test_files_in_the_home_folder_can_be_written_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    options = "sslmode=verify-full&sslrootcert=~/ca.pem&sslcert=~/c.pem&sslkey=~/k.pem&sslcrl=~/crl.pem&passfile=~/.pgpass"

    driver_url = postgres_of(f"postgresql://u@h/db?{options}&application_name=~/x")._url
    signed = open_store("snowflake://me@account/db?private_key_file=~/k.p8")
    unsigned = open_store("snowflake://me:pw@account/db?private_key_file=")

    named = {name: value for name, value in parse_qsl(urlsplit(driver_url).query) if value.startswith("/home/ann/")}
    assert named == {
        "sslrootcert": "/home/ann/ca.pem",
        "sslcert": "/home/ann/c.pem",
        "sslkey": "/home/ann/k.pem",
        "sslcrl": "/home/ann/crl.pem",
        "passfile": "/home/ann/.pgpass",
    }
    assert "application_name=~%2Fx" in driver_url
    assert [sign_in_of(store).private_key_file for store in (signed, unsigned)] == ["/home/ann/k.p8", ""]
    assert sqlite_of("sqlite:///~/x.db").location == "sqlite:////home/ann/x.db"


@pytest.mark.parametrize("url", ["sqlite:///~nobody.here/x.db", "postgresql://u@h/db?sslkey=~nobody.here/k.pem"])
def test_the_home_folder_of_an_unknown_user_is_a_wrong_setting(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"the path of a file in the store's URL, got ~nobody\.here.*there is no user"):
        open_store(url)


@pytest.mark.parametrize("url", ["memory:", "memory://"])
def test_a_store_in_memory_can_be_asked_for(url: str) -> None:
    assert isinstance(open_store(url), MemoryStore)


SECRET = "hunter2"

WRONG = [
    ("", "a name without a scheme"),
    ("drumbeat.db", "a name without a scheme"),
    (f"/var/{SECRET}:x", "a name without a scheme"),
    (f"{SECRET}@host:5432/db", "a name without a scheme"),
    (f"mysql://u:{SECRET}@h/db", "URL: expected sqlite:///FILE, postgresql://.*, got 'mysql:'"),
    (f"postgresql+asyncpg://u:{SECRET}@h/db", "the store's URL: expected sqlite:///.*, got 'postgresql.asyncpg:'"),
    ("sqlite:", "got no file"),
    ("sqlite:///", "got no file"),
    ("sqlite:///?busy_timeout=1", "got no file"),
    ("sqlite://x.db", "three slashes"),
    (f"sqlite://u:{SECRET}@h/x.db", "three slashes"),
    ("sqlite:///x.db?synchronous=off", "expected synchronous to be one of FULL, NORMAL, got 'OFF'"),
    ("sqlite:///x.db?busy_timeout=soon", "busy_timeout='soon'; expected a positive number"),
    ("sqlite:///x.db?busy_timeout=0", "expected a positive number"),
    ("sqlite:///x.db?busy_timeout=nan", "expected a positive number"),
    ("sqlite:///x.db?busy_timeout=inf", "expected a positive number"),
    ("sqlite:///x.db?busy_timeout=", "expected a positive number"),
    ("sqlite:///x.db?journal=wal", "unknown option 'journal'; expected one of synchronous, busy_timeout"),
    (f"postgresql://u:{SECRET}@h/db?connections=0", "connections='0'; expected a positive number"),
    (f"postgresql://u:{SECRET}@h/db?connections=1.5", "expected a positive number"),
    (f"postgresql://u:{SECRET}@h/db?connect_timeout=-1", "expected a positive number"),
    (f"postgresql://u:{SECRET}@h/db?schema=My-Schema", "schema: expected a name of lowercase letters"),
    (f"postgresql://u:{SECRET}@h:port/db", "the store's URL has no valid host"),
    (f"postgresql://u:{SECRET}@h:123456/db", "the store's URL has no valid host"),
    (f"postgresql://u:{SECRET}@[::1/db", "cannot be parsed|no valid host"),
    (f"postgresql://u:12/{SECRET}@h/db", "%2F"),
    (f"postgresql://u:12#{SECRET}@h/db", "%23"),
    (f"postgresql://u:12?{SECRET}@h/db", "%3F"),
]


@pytest.mark.parametrize(("url", "said"), WRONG)
def test_a_wrong_url_is_said_in_one_line_without_its_secrets(url: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match=said) as caught:
        open_store(url)

    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_url_keeps_its_secrets_in_its_causes_too() -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_store(f"postgresql://u:{SECRET}@[h/db")

    assert SECRET not in repr((caught.value.__cause__, caught.value.args))
    assert caught.value.__suppress_context__ or SECRET not in repr(caught.value.__context__)


async def test_a_folder_is_no_sqlite_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="got a folder"):
        async with open_store(f"sqlite:///{tmp_path}", create=True):
            pass


async def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="create the folder first"):
        async with open_store(f"sqlite:///{tmp_path}/nowhere/x.db", create=True):
            pass

    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("?conections=3", "conections.*check the options of the store's URL"),
        ("?sslmode=maybe", "sslmode.*check the options of the store's URL"),
    ],
)
async def test_an_option_the_server_or_driver_does_not_know_is_a_wrong_setting(
    postgres_url: str, options: str, said: str
) -> None:
    with pytest.raises(InvalidSettings, match=said):
        async with open_store(postgres_url + options):
            pass


async def test_a_wrong_password_is_a_wrong_setting_and_is_not_shown(postgres: PostgresServer, postgres_url: str) -> None:
    name = f"user_{postgres_url.rpartition('_')[2]}"
    postgres.add_password_user(name, "right")

    with pytest.raises(InvalidSettings, match="refused the user or password") as caught:
        async with open_store(postgres.url(postgres_url.rpartition("/")[2], name, SECRET)):
            pass

    assert SECRET not in str(caught.value)


async def test_a_user_who_may_not_is_a_wrong_setting(postgres: PostgresServer, postgres_url: str) -> None:
    name = f"guest_{postgres_url.rpartition('_')[2]}"
    postgres.add_password_user(name, SECRET)

    with pytest.raises(InvalidSettings, match=r"permission denied.*grant it") as caught:
        async with open_store(postgres.url(postgres_url.rpartition("/")[2], name, SECRET), create=True):
            pass

    assert SECRET not in str(caught.value)


async def test_a_store_that_was_closed_says_so(tmp_path: Path, postgres_url: str) -> None:
    for url in (f"sqlite:///{tmp_path}/x.db", postgres_url):
        store = open_store(url, create=True)
        async with store:
            await store.now()
        with pytest.raises(DrumbeatError, match="closed; open it before use"):
            await store.now()


async def test_looking_changes_nothing_in_somebody_elses_database(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()

    async with open_store(f"sqlite:///{path}", check_version=False) as store:
        report = await store.upkeep.check()

    assert report.schema_version == 0
    assert path.read_bytes() == before
