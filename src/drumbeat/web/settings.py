"""Settings of the web server: its address and its tokens, all checked at start."""

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
    """Where a server listens, and which tokens it accepts."""

    host: str = "127.0.0.1"
    port: int = 8321
    token: str | None = None  #: operators' token; without any token, every caller on this machine is an operator
    read_token: str | None = None  #: token for read-only access
    names: tuple[str, ...] = ()  #: other host names of this server, such as a proxy's, in lower case
    triggers: Path | None = None  #: file with the triggers that this server fires: schedules, webhooks
    conduct: bool = True  #: whether this server orchestrates runs
    arrives_within: timedelta = timedelta(seconds=20)  #: time limit for a request to arrive; then the connection is closed

    def __repr__(self) -> str:
        return f"WebSettings(host={self.host!r}, port={self.port}, token=…, read_token=…)"

    @property
    def is_open(self) -> bool:
        """Whether the server accepts requests without a token."""
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
    """Return the checked settings. Raises InvalidSettings, for example if a token is missing for a public address."""
    token, read_token = environment.get(TOKEN_VARIABLE) or None, environment.get(READ_TOKEN_VARIABLE) or None
    for variable, value in ((TOKEN_VARIABLE, token), (READ_TOKEN_VARIABLE, read_token)):
        _check_token(variable, value)
    if token is not None and token == read_token:
        raise InvalidSettings(f"expected {TOKEN_VARIABLE} and {READ_TOKEN_VARIABLE} to differ, got the same value for both")
    if token is None and not is_loopback(host):
        raise InvalidSettings(
            f"expected a token to listen on {host}, got none: set {TOKEN_VARIABLE} (try: openssl rand -hex 32) and put a "
            "TLS proxy in front of the server; or listen on 127.0.0.1"
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
    """Whether an address can be reached from this machine only."""
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
            f"expected {variable} to be at least {SHORTEST_TOKEN} ASCII characters, no spaces, got {len(value)} characters; "
            "try: openssl rand -hex 32"
        )
