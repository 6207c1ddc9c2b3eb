"""A connection: a database under test by a name, its password sealed."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A secret nobody can read without the key of this id."""

    key_id: str
    text: str = field(repr=False)  #: ciphertext, in base64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnection:
    """One row of ``connections``."""

    name: str
    url: str  #: never with a password
    secret: Sealed | None = None  #: the password; None: the database asks for none, or it is in the environment
    description: str | None = None
    is_default: bool = False  #: what an editor offers first
    created_at: datetime | None = None
    updated_at: datetime | None = None
