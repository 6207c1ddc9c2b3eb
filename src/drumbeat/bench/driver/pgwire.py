"""The parts of PostgreSQL's wire protocol that a load driver needs: startup, authentication, prepare, bind."""

import base64
import hashlib
import hmac
import secrets
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from drumbeat.core.errors import InvalidSettings

PROTOCOL = 196608
SYNC = b"S\x00\x00\x00\x04"
TERMINATE = b"X\x00\x00\x00\x04"
SSL_REQUEST = struct.pack("!ii", 8, 80877103)

_MOST_ITERATIONS = 1_000_000


class PostgresError(Exception):
    """An error that the PostgreSQL server sent: its SQLSTATE and its message."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.sqlstate = fields.get("C", "XX000")
        self.message = fields.get("M", "unknown error")
        super().__init__(f"{self.message} (SQLSTATE {self.sqlstate})")


@dataclass(frozen=True, slots=True)
class Message:
    type: bytes
    body: bytes


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def startup(user: str, database: str, options: Mapping[str, str]) -> bytes:
    pairs = {"user": user, "database": database, **options}
    body = b"".join(_text(name) + _text(value) for name, value in pairs.items()) + b"\0"
    return struct.pack("!ii", len(body) + 8, PROTOCOL) + body


def parse(name: str, sql: str, types: Sequence[int]) -> bytes:
    """Encode a Parse message, which prepares a named statement with these parameter types."""
    body = _text(name) + _text(sql) + struct.pack(f"!h{len(types)}I", len(types), *types)
    return message(b"P", body)


def describe(name: str) -> bytes:
    return message(b"D", b"S" + _text(name))


def query(sql: str) -> bytes:
    return message(b"Q", _text(sql))


def execute() -> bytes:
    return message(b"E", b"\0" + struct.pack("!i", 0))


def bind_head(name: str, values: int) -> bytes:
    """Encode the part of a Bind message before its values. The values are in binary format."""
    return b"\0" + _text(name) + struct.pack("!hhh", 1, 1, values)


BIND_TAIL = struct.pack("!hh", 1, 1)  #: asks for binary results, so that the server need not format text


def cancel(pid: int, key: int) -> bytes:
    return struct.pack("!iiii", 16, 80877102, pid, key)


def split(buffer: bytearray) -> Iterator[Message]:
    """Remove and yield the complete messages in a buffer. Raises ConnectionError if the data is not PostgreSQL's protocol."""
    while len(buffer) >= 5:
        length = int.from_bytes(buffer[1:5]) + 1
        if length < 5:
            raise ConnectionError(f"expected a PostgreSQL message length of 4 or more, got {length - 1}")
        if len(buffer) < length:
            return
        yield Message(bytes(buffer[:1]), bytes(buffer[5:length]))
        del buffer[:length]


def error_of(body: bytes) -> PostgresError:
    fields = {part[:1].decode(errors="replace"): part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return PostgresError(fields)


def md5_password(user: str, password: str, salt: bytes) -> bytes:
    inner = hashlib.md5((password + user).encode(), usedforsecurity=False).hexdigest()
    outer = hashlib.md5(inner.encode() + salt, usedforsecurity=False).hexdigest()
    return message(b"p", _text("md5" + outer))


def clear_password(password: str) -> bytes:
    return message(b"p", _text(password))


class Scram:
    """The client side of SCRAM-SHA-256: proves the password without sending it, and checks that the server knows it too."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._nonce = base64.b64encode(secrets.token_bytes(18)).decode()
        self._first = f"n=,r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        opening = f"n,,{self._first}".encode()
        return message(b"p", _text("SCRAM-SHA-256") + struct.pack("!i", len(opening)) + opening)

    def answer(self, challenge: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        iterations = int(fields["i"])
        if not fields["r"].startswith(self._nonce) or not 1 <= iterations <= _MOST_ITERATIONS:
            raise InvalidSettings("the server's SCRAM challenge does not match this login; is there a proxy in between?")
        salted = hashlib.pbkdf2_hmac("sha256", self._password, base64.b64decode(fields["s"]), iterations)
        unproved = f"c=biws,r={fields['r']}"
        signed = f"{self._first},{challenge.decode()},{unproved}".encode()
        key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return message(b"p", f"{unproved},p={base64.b64encode(proof).decode()}".encode())

    def check(self, final: bytes) -> None:
        """Raise InvalidSettings unless the server proved that it knows the password."""
        fields = dict(part.split("=", 1) for part in final.decode().split(","))
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._server_signature):
            raise InvalidSettings(
                "the server's SCRAM signature is wrong, so it may not be the real one; check host and port of the target's URL"
            )


def _text(value: str) -> bytes:
    return value.encode() + b"\0"
