"""Detects passwords in database URLs, and inserts a password into a URL."""

from urllib.parse import parse_qsl, quote, urlencode, urlsplit


def holds_password(url: str | None) -> bool:
    """Whether a URL contains a password. True also for a URL that cannot be parsed, because it might contain one."""
    try:
        parts = urlsplit(url or "")
        return bool(parts.password) or any(name.lower() in ("password", "sslpassword") for name, _ in parse_qsl(parts.query))
    except ValueError:
        return True


def with_password(url: str, password: str) -> str:
    """Return the URL with this password after its user name."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()


def with_warehouse(url: str, name: str | None) -> str:
    """Return a Snowflake URL with ``name`` as its warehouse. Without a name, or for another database, the URL is unchanged."""
    if not name or not url.lower().startswith("snowflake:"):
        return url
    parts = urlsplit(url)
    options = {**dict(parse_qsl(parts.query)), "warehouse": name}
    return parts._replace(query=urlencode(options)).geturl()


def keeps_history(url: str | None) -> bool:
    """Whether the database at a URL records every statement, so that a run's statements can be read afterwards."""
    return (url or "").lower().startswith("snowflake:")
