"""From a URL to a target; what is wrong is said without saying the password."""

import sys
from pathlib import Path

import pytest

from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.mysql_session import address_of
from drumbeat.bench.targets.open import open_target
from drumbeat.core.errors import InvalidSettings, MissingExtra

SECRET = "hunter2"

TARGETS = [
    ("sqlite:///data/t.db", "sqlite", "sqlite:///data/t.db"),
    ("sqlite:////var/t.db?synchronous=full", "sqlite", "sqlite:////var/t.db"),
    ("duckdb:///t.duckdb", "duckdb", "duckdb:///t.duckdb"),
    (f"mysql://ann:{SECRET}@db.example/shop", "mysql", "mysql://db.example:3306/shop"),
    (f"MariaDB://ann:{SECRET}@db.example:3307/shop?ssl-mode=required", "mysql", "mysql://db.example:3307/shop"),
    ("mysql:///shop?unix-socket=/run/mysql.sock", "mysql", "mysql:///run/mysql.sock/shop"),
    (f"postgresql://ann:{SECRET}@db.example/shop", "postgresql", "postgresql://db.example:5432/shop"),
    (f"postgres://ann:{SECRET}@db.example/shop", "postgresql", "postgresql://db.example:5432/shop"),
]

WRONG = [
    ("", "without a scheme"),
    ("shop.db", "without a scheme"),
    (f"oracle://ann:{SECRET}@db/shop", "'oracle:'"),
    ("sqlite://", "no file"),
    ("sqlite:///", "no file"),
    ("sqlite://host/file", "three slashes"),
    ("sqlite:///f?synchronous=sometimes", "synchronous"),
    ("sqlite:///f?mode=ro", "unknown option 'mode'"),
    ("duckdb:///f?threads=1", "unknown option 'threads'"),
    (f"mysql://ann:{SECRET}@db", "no database"),
    (f"mysql://ann:{SECRET}@db/shop?tls=yes", "unknown option 'tls'"),
    (f"mysql://ann:{SECRET}@db/shop?ssl-mode=perhaps", "VERIFY_IDENTITY"),
    (f"mysql://ann:{SECRET}@db/shop?ssl-ca=/no/such/file", "ssl-ca"),
    (f"mysql://ann:{SECRET}/x@db/shop", "%2F"),
    (f"mysql://ann:{SECRET}:{SECRET}@[db/shop", "expected"),
    (f"postgresql://ann:pa/{SECRET}@db/shop", "%2F"),
    (f"postgresql://ann:{SECRET}@db:99999/shop", "expected a port from 1 to 65535 in the target's URL, got 99999"),
    ("postgresql:///shop?port=99999", "expected a port from 1 to 65535 in the target's URL, got 99999"),
    ("postgresql:///shop?port=five", "expected a port from 1 to 65535 in the target's URL, got a value that is not a number"),
    (f"postgresql:///shop?port={'9' * 5_000}", "expected a port from 1 to 65535 in the target's URL, got a value that is not"),
    ("postgresql://localhost:0/shop", "expected a port from 1 to 65535"),
    ("mysql://localhost:65536/shop", "expected a port from 1 to 65535"),
]


@pytest.mark.parametrize(("url", "name", "location"), TARGETS)
def test_a_url_names_a_target(url: str, name: str, location: str) -> None:
    target: Target = open_target(url)

    assert (target.traits.name, target.location) == (name, location)
    assert SECRET not in repr(vars(target))


@pytest.mark.parametrize(("url", "said"), WRONG)
def test_a_url_that_is_none_is_refused_without_its_password(url: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_target(url)

    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "environment", "password"),
    [
        ("mysql://ann:in%3Aside@db/shop", {"DRUMBEAT_TARGET_PASSWORD": "outside"}, "in:side"),
        ("mysql://ann@db/shop", {"DRUMBEAT_TARGET_PASSWORD": "out%side"}, "out%side"),
        ("mysql://ann@db/shop", {}, ""),
    ],
)
def test_a_password_is_in_the_url_or_the_environment(url: str, environment: dict[str, str], password: str) -> None:
    assert address_of(url, environment).password == password


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_a_file_may_be_in_the_home_folder(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")

    assert open_target(f"{scheme}:///~/t.db").location == f"{scheme}:////home/ann/t.db"


def test_a_mysql_socket_and_its_certificates_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert address_of("mysql:///shop?unix-socket=~/m.sock", {}).unix_socket == f"{tmp_path}/m.sock"
    (tmp_path / "ca.pem").write_text("nothing that can be used")
    with pytest.raises(InvalidSettings, match="ssl-ca") as caught:
        address_of("mysql://db/shop?ssl-ca=~/ca.pem", {})
    assert not isinstance(caught.value.__cause__, FileNotFoundError)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("mysql://ann@127.0.0.1:1/shop", "asyncmy", "mysql"), ("duckdb:///t.duckdb", "duckdb", "duckdb")],
)
async def test_a_driver_that_is_missing_is_named(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtra, match=rf"drumbeat\[{extra}\]"):
        async with open_target(url):
            pass
