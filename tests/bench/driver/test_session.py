"""Opening a session: what ends a run for good, and what a later try may mend."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from drumbeat.bench.driver.pgwire import PostgresError
from drumbeat.bench.driver.session import PASSWORD_VARIABLE, PostgresAddress, address_of, open_session
from drumbeat.bench.model import KeyValue, Statement
from drumbeat.bench.targets.contract import load, operation
from drumbeat.core.errors import InvalidInput, InvalidSettings

WORK = load(operation("ONE", 100, Statement(sql="SELECT $1", values=(KeyValue(low=1, high=9),))))
LIMIT = timedelta(seconds=30)
READY = b"Z" + struct.pack("!i", 5) + b"I"
LOGGED_IN = b"R" + struct.pack("!ii", 8, 0) + READY


def error(sqlstate: str) -> bytes:
    body = f"SERROR\0C{sqlstate}\0Mthe server says no\0\0".encode()
    return b"E" + struct.pack("!i", len(body) + 4) + body


@contextmanager
def server(answers: Callable[[socket.socket], None], tls: str) -> Iterator[PostgresAddress]:
    """A server that takes one connection and answers it in this way."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(30)
                answers(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield PostgresAddress(host="127.0.0.1", port=listening.getsockname()[1], user="u", database="d", tls=tls)
        thread.join()


def answering(*replies: bytes) -> Callable[[socket.socket], None]:
    def answers(connection: socket.socket) -> None:
        for reply in replies:
            connection.recv(65536)
            connection.sendall(reply)
        connection.recv(65536)

    return answers


@pytest.mark.parametrize("tls", ["prefer", "require", "verify-full"])
def test_a_proxy_whose_server_is_away_is_asked_again_later(tls: str) -> None:
    with server(lambda connection: None, tls) as address, pytest.raises(OSError):
        open_session(address, WORK, LIMIT)


def test_a_server_without_tls_is_not_asked_again_if_tls_is_required() -> None:
    with server(answering(b"N"), "require") as address, pytest.raises(InvalidSettings, match="does not support TLS"):
        open_session(address, WORK, LIMIT)


@pytest.mark.parametrize(
    ("sqlstate", "raised"),
    [
        ("57P01", PostgresError),
        ("53300", PostgresError),
        ("40001", PostgresError),
        ("42P01", InvalidInput),
        ("42601", InvalidInput),
    ],
)
def test_only_a_fault_of_the_statement_itself_is_called_invalid(sqlstate: str, raised: type[Exception]) -> None:
    with server(answering(LOGGED_IN, error(sqlstate) + READY), "disable") as address, pytest.raises(raised) as caught:
        open_session(address, WORK, LIMIT)

    assert caught.type is raised


@pytest.mark.parametrize(
    ("url", "environment", "user", "password"),
    [
        ("postgresql://a%41:%41b@h/d", {}, "aA", "Ab"),
        ("postgresql://h/d?user=a%2541", {}, "a%41", ""),
        ("postgresql://u@h/d", {"PGPASSWORD": "%41b"}, "u", "%41b"),
        ("postgresql://u@h/d", {PASSWORD_VARIABLE: "%41b", "PGPASSWORD": "other"}, "u", "%41b"),
        ("postgresql://h/d", {"PGUSER": "a%41"}, "a%41", ""),
    ],
)
def test_only_what_the_url_says_is_decoded(url: str, environment: dict[str, str], user: str, password: str) -> None:
    found = address_of(url, environment)

    assert (found.user, found.password) == (user, password)


def test_a_certificate_may_be_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")

    assert address_of("postgresql://h/d?sslrootcert=~/ca.pem", {}).tls_root == "/home/ann/ca.pem"
