"""Where the server listens and whom it lets in, checked whole at start."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from drumbeat.core.errors import InvalidSettings

TOKEN_VARIABLE = "DRUMBEAT_TOKEN"  # noqa: S105  (a variable's name)
READ_TOKEN_VARIABLE = "DRUMBEAT_READ_TOKEN"  # noqa: S105
SHORTEST_TOKEN = 16
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """How a server is reached."""

    host: str = "127.0.0.1"
    port: int = 8321
    token: str | None = None  #: lets an operator in; None: everybody on this machine is one
    read_token: str | None = None  #: lets somebody in who may look and change nothing
    names: tuple[str, ...] = ()  #: names this server is reached by, beside its address (a proxy's), in lower case
    triggers: Path | None = None  #: the file of triggers whose schedules are kept and whose webhooks are heard
    conduct: bool = True  #: whether runs are orchestrated from here
    arrives_within: timedelta = timedelta(seconds=20)  #: for a request to arrive whole; then its connection is closed

    def __repr__(self) -> str:
        return f"WebSettings(host={self.host!r}, port={self.port}, token=…, read_token=…)"

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self.token is None and self.read_token is None


def load_web_settings(
    environment: Mapping[str, str],
    *,
    host: str = "127.0.0.1",
    port: int = 8321,
    names: tuple[str, ...] = (),
    triggers: Path | None = None,
    conduct: bool = True,
) -> WebSettings:
    """Settings of a server. Raises InvalidSettings: beyond loopback nobody listens without a token."""
    token, read_token = environment.get(TOKEN_VARIABLE) or None, environment.get(READ_TOKEN_VARIABLE) or None
    for variable, value in ((TOKEN_VARIABLE, token), (READ_TOKEN_VARIABLE, read_token)):
        _check_token(variable, value)
    if token is not None and token == read_token:
        raise InvalidSettings(f"expected {TOKEN_VARIABLE} and {READ_TOKEN_VARIABLE} to differ, got the same twice")
    if token is None and not is_loopback(host):
        raise InvalidSettings(
            f"expected a token to listen on {host}, got none: set {TOKEN_VARIABLE} (try: openssl rand -hex 32), and put a "
            "proxy that speaks TLS before it; or listen on 127.0.0.1"
        )
    return WebSettings(
        host=host,
        port=port,
        token=token,
        read_token=read_token,
        names=tuple(name.casefold() for name in names),
        triggers=triggers,
        conduct=conduct,
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_token(variable: str, value: str | None) -> None:
    if value is None:
        return
    if len(value) < SHORTEST_TOKEN or not value.isascii() or any(sign.isspace() for sign in value):
        raise InvalidSettings(
            f"expected {variable} to be at least {SHORTEST_TOKEN} ASCII signs without spaces, got {len(value)} signs; "
            "try: openssl rand -hex 32"
        )
