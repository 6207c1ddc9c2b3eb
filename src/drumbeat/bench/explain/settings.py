"""Settings of the language model that explains runs, with its key."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import short_repr

KEY_VARIABLE = "DRUMBEAT_LANGUAGE_MODEL_KEY"
_LONGEST_NAME = 200
_LONGEST_KEY = 10_000
_BOUNDS = {"max_characters": (100, 10_000), "max_tokens": (50, 100_000)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModelSettings:
    """The address, name and key source of a language model with an OpenAI-compatible API, and limits on its time and answer."""

    url: str  #: base URL of the API, as https://HOST/v1; /chat/completions is added
    model: str  #: name of the model
    key_variable: str = KEY_VARIABLE  #: environment variable that holds the key
    key_file: Path | None = None  #: file that holds the key, instead of the variable
    timeout: timedelta = timedelta(seconds=30)  #: time limit of a whole request
    max_characters: int = 1500  #: a longer answer is cut after its last sentence that fits
    max_tokens: int = 2000  #: the most tokens that the model may generate, those of its reasoning included
    automatic: bool = False  #: whether each run is explained when it ends, without being asked for

    def __post_init__(self) -> None:
        _check_url(self.url)
        if not self.model or len(self.model) > _LONGEST_NAME or not self.model.isprintable():
            raise InvalidSettings(f"expected model to be the name of a model, got {short_repr(self.model)}")
        if not timedelta(seconds=1) <= self.timeout <= timedelta(minutes=10):
            raise InvalidSettings(f"expected timeout to be 1s to 10m, got {short_repr(self.timeout)}")
        for name, (least, most) in _BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise InvalidSettings(f"expected {name} to be {least} to {most}, got {getattr(self, name)}")

    @property
    def endpoint(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith("/chat/completions") else f"{base}/chat/completions"

    @property
    def host(self) -> str:
        """The host, with its port if the URL has one, for error messages."""
        return urlsplit(self.url).netloc


def _check_url(url: str) -> None:
    """Raise InvalidSettings unless requests to this URL keep the key secret: by TLS, or to this machine."""
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts.hostname or ""))
        is_whole = bool(parts.hostname) and parts.port != 0 and url.isprintable() and " " not in url
    except ValueError:
        is_safe = is_whole = False
        parts = urlsplit("")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidSettings(
            f"expected url in [language_model] without user, password, ? and #; put the key into {KEY_VARIABLE}"
        )
    if not is_safe or not is_whole:
        raise InvalidSettings(f"expected url to be https://HOST/PATH, or http:// on this machine, got {short_repr(url)}")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_key(settings: LanguageModelSettings, environment: Mapping[str, str]) -> str | None:
    """Return the key from the file or the variable that the settings name; None if the variable is not set.

    Raises InvalidSettings, whose message never shows the key."""
    if settings.key_file is None:
        source, text = settings.key_variable, environment.get(settings.key_variable, "")
    else:
        source, text = str(settings.key_file), _file(settings.key_file)
        if not text.strip():
            raise InvalidSettings(f"expected the key of the language model in {source}, got an empty file")
    key = text.strip()
    if not key.isascii() or any(sign.isspace() or not sign.isprintable() for sign in key) or len(key) > _LONGEST_KEY:
        raise InvalidSettings(f"expected the key of the language model in {source} to be one ASCII word, got something else")
    return key or None


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")[: _LONGEST_KEY + 1]
    except OSError as exc:
        raise InvalidSettings(f"cannot read the key of the language model from {path}: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise InvalidSettings(f"expected the key of the language model in {path} to be ASCII, got something else") from None
