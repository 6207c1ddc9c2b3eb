"""Passwords in database URLs."""

from urllib.parse import parse_qsl, quote, urlsplit


def holds_password(url: str | None) -> bool:
    """Whether a URL contains a password. A URL that cannot be parsed counts as one that does."""
    try:
        parts = urlsplit(url or "")
        return bool(parts.password) or any(name.lower() in ("password", "sslpassword") for name, _ in parse_qsl(parts.query))
    except ValueError:
        return True


def with_password(url: str, password: str) -> str:
    """The URL with a password for its user."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
