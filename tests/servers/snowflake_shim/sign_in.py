"""Who may sign in: by password, by key pair, or by OAuth token."""

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

import jwt
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from servers.snowflake_shim.failures import Refusal


@dataclass(slots=True, kw_only=True)
class User:
    """One user and the ways it may sign in."""

    name: str
    password: str | None = None
    public_key: str | None = None  #: PEM
    oauth_token: str | None = None
    role: str = "PUBLIC"
    default_warehouse: str | None = None


class Users:
    """The users of the account. While there is none, anybody may sign in."""

    def __init__(self) -> None:
        self.by_name: dict[str, User] = {}
        self.sign_ins: list[dict[str, str]] = []  #: who came, and by which authenticator

    def add(self, given: dict[str, Any]) -> None:
        user = User(**given)
        user.name = user.name.upper()
        self.by_name[user.name] = user

    def signed_in(self, data: dict[str, Any]) -> User:
        """The user who signs in with this request. Raises Refusal."""
        authenticator = str(data.get("AUTHENTICATOR") or "SNOWFLAKE").upper()
        name = str(data.get("LOGIN_NAME") or "").upper()
        if authenticator == "OAUTH" and not name:
            name = next((each.name for each in self.by_name.values() if each.oauth_token == data.get("TOKEN")), "")
        self.sign_ins.append({"user": name, "authenticator": authenticator})
        if not self.by_name:
            return User(name=name or "NOBODY")
        user = self.by_name.get(name)
        match authenticator:
            case "SNOWFLAKE_JWT":
                if user is None or user.public_key is None or not _is_signed(str(data.get("TOKEN")), user.public_key, name):
                    raise Refusal(390144, "08001", "JWT token is invalid.")
            case "OAUTH":
                if user is None or user.oauth_token is None or user.oauth_token != data.get("TOKEN"):
                    raise Refusal(390303, "08001", "Invalid OAuth access token.")
            case "PROGRAMMATIC_ACCESS_TOKEN":
                if user is None or user.oauth_token is None or user.oauth_token != data.get("TOKEN"):
                    raise Refusal(394400, "08001", "Programmatic access token is invalid.")
            case _:
                if user is None or user.password is None or user.password != data.get("PASSWORD"):
                    raise Refusal(390100, "08001", "Incorrect username or password was specified.")
        return user


def _is_signed(token: str, public_key: str, user: str) -> bool:
    key = load_pem_public_key(public_key.encode())
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(spki).digest()).decode()
    try:
        claims = jwt.decode(token, public_key, algorithms=["RS256"], options={"verify_aud": False})
    except jwt.PyJWTError:
        return False
    subject = str(claims.get("sub", ""))
    return subject.upper().endswith(f".{user}") and claims.get("iss") == f"{subject}.{fingerprint}"
