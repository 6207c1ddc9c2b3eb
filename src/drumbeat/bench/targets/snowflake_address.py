"""Reads a snowflake:// URL: account, database, schema, warehouse, role, and how to sign in."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from drumbeat.bench.driver.session import PASSWORD_VARIABLE
from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import whole_number
from drumbeat.user_path import user_path

EXPECTED = "snowflake://USER@ACCOUNT/DATABASE/SCHEMA?warehouse=NAME"
AUTHENTICATORS = ("password", "key_pair", "oauth", "token")
TABLE_KINDS = ("standard", "hybrid", "interactive")
_OPTIONS = (
    "authenticator",
    "host",
    "monitor_warehouse",
    "port",
    "private_key_file",
    "protocol",
    "role",
    "tables",
    "warehouse",
)
_CONNECTOR_NAMES = {
    "password": "SNOWFLAKE",
    "key_pair": "SNOWFLAKE_JWT",
    "oauth": "OAUTH",
    "token": "PROGRAMMATIC_ACCESS_TOKEN",
}
_ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_KEY_MARK = "PRIVATE KEY-----"
_SHOWN_OPTIONS = ("host", "port", "protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnowflakeAddress:
    """Where a Snowflake database is and how to sign in. ``repr`` never shows the secret."""

    account: str
    user: str
    database: str
    schema: str = "PUBLIC"
    warehouse: str | None = None
    monitor_warehouse: str | None = None  #: runs our own statistics queries instead of the warehouse under test
    role: str | None = None
    authenticator: str = "password"
    secret: str = field(default="", repr=False)  #: a password, a token, a private key, or the pass phrase of a key file
    private_key_file: Path | None = None
    tables: str = "standard"  #: the kind of tables that ``bench prepare`` creates
    place: Mapping[str, Any] = field(default_factory=dict)  #: host, port and protocol, if not the usual ones of the account

    @property
    def location(self) -> str:
        return f"snowflake://{self.account}/{self.database}/{self.schema}"

    def connect_options(self) -> dict[str, Any]:
        """Return the keyword arguments for ``snowflake.connector.connect``, including the secret. Raises InvalidSettings."""
        options: dict[str, Any] = {
            "account": self.account,
            "user": self.user,
            "database": quoted_part(self.database),
            "schema": quoted_part(self.schema),
            "authenticator": _CONNECTOR_NAMES[self.authenticator],
            **self.place,
        }
        if self.warehouse:
            options["warehouse"] = identifier(self.warehouse)
        if self.role:
            options["role"] = identifier(self.role)
        return {**options, **self._sign_in()}

    def _sign_in(self) -> dict[str, Any]:
        match self.authenticator:
            case "key_pair" if self.private_key_file is not None:
                secret = {"private_key_password": self.secret} if self.secret else {}
                return {"private_key_file": str(self.private_key_file), **secret}
            case "key_pair":
                return {"private_key": private_key(self.secret, self.location)}
            case "oauth" | "token":
                return {"token": self.secret}
            case _:
                return {"password": self.secret}


def address_of(url: str, environment: Mapping[str, str] = os.environ) -> SnowflakeAddress:
    """Read a snowflake:// URL. Parts missing in the URL come from the environment: SNOWFLAKE_ACCOUNT, SNOWFLAKE_USER and so on.
    A private key in the environment is used only if the connection has no secret or key of its own.

    Raises InvalidSettings, with a message that never shows a secret.
    """
    parts = urlsplit(url, allow_fragments=False)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := set(options) - set(_OPTIONS):
        raise InvalidSettings(f"the target's URL has an unknown option {min(unknown)!r}; expected one of {', '.join(_OPTIONS)}")
    folders = [unquote(each) for each in parts.path.strip("/").split("/")]
    if len(folders) > 2:
        raise InvalidSettings(f"expected {EXPECTED}, got more than a database and a schema in the target's URL")

    def given(name: str, said: str | None) -> str | None:
        return said or environment.get(f"SNOWFLAKE_{name}") or None

    own_secret = unquote(parts.password or "") or environment.get(PASSWORD_VARIABLE, "")
    key_file = options.get("private_key_file") or (None if own_secret else given("PRIVATE_KEY_PATH", None))
    secret = own_secret or environment.get("SNOWFLAKE_PASSWORD", "")
    authenticator = _authenticator(options.get("authenticator"), key_file, secret)
    used_file = key_file if authenticator == "key_pair" else None
    if used_file:
        secret = own_secret or environment.get("SNOWFLAKE_PRIVATE_KEY_PASSPHRASE", "")
    return SnowflakeAddress(
        account=_account(given("ACCOUNT", unquote(parts.netloc.rpartition("@")[2]))),
        user=_required("USER", given("USER", unquote(parts.username or ""))),
        database=_required("DATABASE", given("DATABASE", folders[0])),
        schema=given("SCHEMA", folders[1] if len(folders) > 1 else None) or "PUBLIC",
        warehouse=given("WAREHOUSE", options.get("warehouse")),
        monitor_warehouse=options.get("monitor_warehouse") or None,
        role=given("ROLE", options.get("role")),
        authenticator=authenticator,
        secret=secret,
        private_key_file=user_path(used_file, "expected the path of a private key") if used_file else None,
        tables=_one_of("tables", options.get("tables", "standard").lower(), TABLE_KINDS),
        place=_place(options),
    )


def _authenticator(said: str | None, key_file: str | None, secret: str) -> str:
    """Return the URL's ``authenticator`` or, if it names none: key_pair if a private key is given, else password."""
    if said:
        return _one_of("authenticator", said.lower(), AUTHENTICATORS)
    return "key_pair" if key_file or _KEY_MARK in secret else "password"


def _one_of(name: str, value: str, expected: tuple[str, ...]) -> str:
    if value not in expected:
        raise InvalidSettings(f"expected the option {name} to be one of {', '.join(expected)}, got {value!r}")
    return value


def _required(name: str, value: str | None) -> str:
    if not value:
        raise InvalidSettings(f"expected {EXPECTED}, got no {name} in the target's URL; add it, or set SNOWFLAKE_{name}")
    return value


def _account(value: str | None) -> str:
    """Return the account identifier. Raises InvalidSettings if it is invalid; the message does not show it, because it could
    be part of a password."""
    account = _required("ACCOUNT", value).removesuffix(".snowflakecomputing.com")
    if not _ACCOUNT.fullmatch(account):
        raise InvalidSettings(
            f"the target's URL has no valid account; expected {EXPECTED}, "
            "with : / ? # @ in a name or password written as %3A %2F %3F %23 %40"
        )
    return account


def _place(options: Mapping[str, str]) -> dict[str, Any]:
    """Return host, port and protocol. Raises InvalidSettings for http to another machine: the secret would not be encrypted."""
    place: dict[str, Any] = {name: options[name] for name in _SHOWN_OPTIONS if options.get(name)}
    if port := place.pop("port", None):
        number = whole_number(port)
        if number is None or not 1 <= number <= 65_535:
            raise InvalidSettings("expected a port from 1 to 65535 in the target's URL, got another value")
        place["port"] = number
    protocol = _one_of("protocol", place.get("protocol", "https"), ("https", "http"))
    if protocol == "http" and place.get("host") not in _LOOPBACK:
        raise InvalidSettings(
            "expected protocol=https; connections without encryption are allowed only to this machine (127.0.0.1)"
        )
    return place


def private_key(text: str, location: str) -> bytes:
    """Convert a private key from PEM to DER, as the connector expects it. Raises InvalidSettings, which never shows the key."""
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

    try:
        key = load_pem_private_key(_in_lines(text).encode(), password=None)
    except (ValueError, TypeError) as exc:
        raise InvalidSettings(
            f"cannot sign in at {location} by key pair: expected an unencrypted private key in PEM as the password, "
            "or the option private_key_file with the file's pass phrase as the password"
        ) from exc
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())


def _in_lines(text: str) -> str:
    """Restore the line breaks of a private key in PEM: a key that was entered in one line has spaces or \\n instead."""
    found = _PEM.search(text)
    if found is None:
        return text
    body = re.sub(r"\\n|\s", "", found["body"])
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join([f"-----BEGIN {found['kind']}-----", *lines, f"-----END {found['kind']}-----", ""])


_PEM = re.compile(r"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----(?P<body>.*?)-----END", re.DOTALL)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")


def quoted_part(name: str) -> str:
    """Quote one name. A name that needs no quotes becomes upper case, as Snowflake stores unquoted names in upper case."""
    if len(name) > 1 and name[0] == name[-1] == '"':
        return name
    return quoted_stored(name.upper() if _PLAIN.fullmatch(name) else name)


def quoted_stored(stored: str) -> str:
    """Quote a name that is already as Snowflake stores it, such as a name in a row of SHOW. Its case is kept."""
    return '"' + stored.replace('"', '""') + '"'


def identifier(name: str) -> str:
    """Return a name as it is written in SQL: with quotes only if it needs them."""
    return name if _PLAIN.fullmatch(name) else quoted_part(name)


def stored_name(name: str) -> str:
    """Return a name as Snowflake stores it: in upper case, unless it was quoted or needs quotes."""
    return quoted_part(name)[1:-1].replace('""', '"')
