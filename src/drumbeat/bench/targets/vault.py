"""Encrypts passwords of stored connections, with a key from the environment variable DRUMBEAT_KEY."""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drumbeat.core.connection import EncryptedSecret
from drumbeat.core.errors import InvalidInput, InvalidSettings, MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE = "DRUMBEAT_KEY"
KEY_BYTES = 32
_NONCE_BYTES = 12
_CREATE_ONE = "create one with: openssl rand -base64 32"


@dataclass(frozen=True, slots=True)
class Key:
    """An AES-256 key. ``key_id`` identifies the key without revealing it."""

    secret: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        return hmac.digest(self.secret, b"drumbeat key id", hashlib.sha256).hex()[:12]


class Vault:
    """Encrypts with its first key, decrypts with any. To change keys: add a new key in front, ``reseal``, remove the old."""

    def __init__(self, keys: Sequence[Key] = ()) -> None:
        self._keys = tuple(keys)

    @property
    def is_open(self) -> bool:
        """Whether the vault has a key, that is, whether it can encrypt."""
        return bool(self._keys)

    def seal(self, text: str, bound_to: str) -> EncryptedSecret:
        """Encrypt a text. It can be decrypted only with the same ``bound_to``. Raises InvalidSettings if there is no key."""
        key = self._first()
        nonce = os.urandom(_NONCE_BYTES)
        ciphertext = _cipher(key).encrypt(nonce, text.encode(), bound_to.encode())
        return EncryptedSecret(key_id=key.key_id, text=base64.b64encode(nonce + ciphertext).decode())

    def open(self, sealed: EncryptedSecret, bound_to: str) -> str:
        """Decrypt a text that was sealed for ``bound_to``, in practice a connection's name and URL. Raises InvalidSettings if
        its key is missing, InvalidInput if the sealed text was changed or was sealed for another ``bound_to``."""
        key = next((each for each in self._keys if each.key_id == sealed.key_id), None)
        if key is None:
            raise InvalidSettings(
                f"expected the key with the id {sealed.key_id} in {KEY_VARIABLE}, to decrypt a connection's password; "
                f"got {', '.join(each.key_id for each in self._keys) or 'none'}"
            )
        from cryptography.exceptions import InvalidTag

        try:
            data = base64.b64decode(sealed.text, validate=True)
            return str(_cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound_to.encode()).decode())
        except (InvalidTag, ValueError):
            raise InvalidInput(
                f"cannot decrypt the password of connection {bound_to.partition(chr(10))[0]!r}: the password was changed in "
                "the store or moved to another URL; set the password again"
            ) from None

    def is_current(self, sealed: EncryptedSecret) -> bool:
        """Whether a text is encrypted with the first key, so that it need not be encrypted again."""
        return bool(self._keys) and sealed.key_id == self._keys[0].key_id

    def fingerprint(self, data: bytes) -> str:
        """Return a hash of the data, keyed with the vault's first key if it has one, so that others cannot guess the data."""
        return hmac.digest(self._keys[0].secret if self._keys else b"-", b"fingerprint\0" + data, hashlib.sha256).hex()

    def _first(self) -> Key:
        if not self._keys:
            raise InvalidSettings(f"expected a key in {KEY_VARIABLE} to encrypt a connection's password; {_CREATE_ONE}")
        return self._keys[0]


def open_vault(environment: Mapping[str, str]) -> Vault:
    """Make a vault with the comma-separated keys in DRUMBEAT_KEY. Raises InvalidSettings; its message shows no key."""
    texts = [text.strip() for text in environment.get(KEY_VARIABLE, "").split(",") if text.strip()]
    return Vault([_key(text, n) for n, text in enumerate(texts, 1)])


def _key(text: str, n: int) -> Key:
    try:
        secret = base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        raise InvalidSettings(
            f"expected {KEY_BYTES} bytes in base64 as key {n} of {KEY_VARIABLE}, got another value; {_CREATE_ONE}"
        )
    return Key(secret)


def _cipher(key: Key) -> "AESGCM":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError as exc:
        raise MissingExtra("encrypting a connection's password", "web") from exc
    return AESGCM(key.secret)
