"""A saved connection: a named database under test, with its password encrypted."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A secret that can be read only with the key of this id."""

    key_id: str
    text: str = field(repr=False)  #: ciphertext, in base64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConnection:
    """One row of ``connections``."""

    name: str
    url: str  #: without the password
    secret: Sealed | None = None  #: the password; None: the database needs none, or it comes from the environment
    description: str | None = None
    is_default: bool = False  #: preselected in the editor
    created_at: datetime | None = None
    updated_at: datetime | None = None
