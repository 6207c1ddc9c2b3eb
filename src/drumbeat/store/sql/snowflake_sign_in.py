"""How the Snowflake store signs in: from its URL and one environment variable, which holds the secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.store_url import PASSWORD_VARIABLE

_CONNECTOR_NAMES = {
    "password": "SNOWFLAKE",
    "key_pair": "SNOWFLAKE_JWT",
    "oauth": "OAUTH",
    "token": "PROGRAMMATIC_ACCESS_TOKEN",
}
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnowflakeSignIn:
    """Who signs in to which account, and how. The secret is a password, a token, or the passphrase of the private key."""

    account: str
    user: str
    database: str
    schema: str
    secret: str | None = field(default=None, repr=False)
    warehouse: str | None = None
    role: str | None = None
    authenticator: str | None = None
    private_key_file: str | None = None
    place: Mapping[str, Any] = field(
        default_factory=dict
    )  #: host, port and protocol, where they do not follow from the account

    @property
    def way(self) -> str:
        """The given authenticator; if none is given, ``key_pair`` if there is a private key file, otherwise ``password``."""
        return (self.authenticator or ("key_pair" if self.private_key_file else "password")).lower()

    def check(self) -> None:
        """Raise InvalidSettings if something is missing. The error does not show the secret."""
        if self.way not in _CONNECTOR_NAMES:
            raise InvalidSettings(
                f"the store's URL: expected authenticator to be one of {', '.join(_CONNECTOR_NAMES)}, got {self.way!r}"
            )
        if self.place.get("protocol") == "http" and self.place.get("host") not in _THIS_MACHINE:
            raise InvalidSettings("the store's URL: expected protocol=http only with host=127.0.0.1 (it is not encrypted)")
        if self.way == "key_pair":
            if not self.private_key_file:
                raise InvalidSettings("the store's URL: expected private_key_file=FILE for authenticator=key_pair, got none")
        elif not self.secret:
            secret, others = (
                ("password", "; or add private_key_file=FILE to its URL") if self.way == "password" else ("token", "")
            )
            raise InvalidSettings(
                f"expected the {secret} of the Snowflake store in the environment variable {PASSWORD_VARIABLE}, "
                f"got none{others}"
            )

    def parameters(self) -> dict[str, Any]:
        """Return the arguments of the connector that say where to connect and how to sign in."""
        given = {
            "account": self.account,
            "user": self.user,
            "database": self.database,
            "schema": self.schema,
            "warehouse": self.warehouse,
            "role": self.role,
            "authenticator": _CONNECTOR_NAMES[self.way],
            **self.place,
            **self._credentials(),
        }
        return {name: value for name, value in given.items() if value is not None}

    def _credentials(self) -> dict[str, str | None]:
        match self.way:
            case "key_pair":
                return {"private_key_file": self.private_key_file, "private_key_password": self.secret}
            case "password":
                return {"password": self.secret}
            case _:
                return {"token": self.secret}
