"""How the Snowflake store signs in: from its URL and one environment variable, which holds the secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drumbeat.core.errors import InvalidSettings

_KEY_PAIR, _OAUTH, _PASSWORD = "SNOWFLAKE_JWT", "OAUTH", "SNOWFLAKE"
_TOKENS = (_OAUTH, "PROGRAMMATIC_ACCESS_TOKEN")


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
        """The authenticator: key pair if there is a file of a private key, otherwise password, unless another one is given."""
        return (self.authenticator or (_KEY_PAIR if self.private_key_file else _PASSWORD)).upper()

    def check(self) -> None:
        """Raise InvalidSettings if something is missing. The error does not show the secret."""
        if self.way == _KEY_PAIR and not self.private_key_file:
            raise InvalidSettings("the store's URL: expected private_key_file=FILE for a sign-in with a key pair, got none")
        if self.way == _PASSWORD and not self.secret:
            raise InvalidSettings(
                "the store's URL has no way to sign in to Snowflake; add private_key_file=FILE, or authenticator=oauth, or set "
                "the environment variable DRUMBEAT_STORE_PASSWORD"
            )
        if self.way in _TOKENS and not self.secret:
            raise InvalidSettings(
                f"expected the token for authenticator={self.way.lower()} in the environment variable DRUMBEAT_STORE_PASSWORD, "
                "got none"
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
            **self.place,
        }
        return {name: value for name, value in given.items() if value is not None} | self._credentials()

    def _credentials(self) -> dict[str, Any]:
        if self.way == _KEY_PAIR:
            passphrase = {"private_key_password": self.secret} if self.secret else {}
            return {"authenticator": _KEY_PAIR, "private_key_file": self.private_key_file, **passphrase}
        if self.way in _TOKENS:
            return {"authenticator": self.way, "token": self.secret}
        return {"password": self.secret} | ({} if self.way == _PASSWORD else {"authenticator": self.way})
