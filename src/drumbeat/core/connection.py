"""A saved connection: a named database under test, with its password encrypted."""

from dataclasses import dataclass, field
from datetime import datetime

LONGEST_URL = 2000
LONGEST_PASSWORD = 8000  #: enough for a private key or a token in place of a password


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedSecret:
    """An encrypted secret, and the id of the key that decrypts it."""

    key_id: str
    text: str = field(repr=False)  #: ciphertext, in base64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnection:
    """A saved connection to a database under test: one row of ``connections``."""

    name: str
    url: str  #: without the password
    secret: EncryptedSecret | None = (
        None  #: the encrypted password; None: no password is needed, or it comes from the environment
    )
    description: str | None = None
    is_default: bool = False  #: preselected in the editor
    created_at: datetime | None = None
    updated_at: datetime | None = None
