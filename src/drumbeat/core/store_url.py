"""Tells whether a store's URL contains a secret, and whether the store takes its password from an environment variable."""

import re

PASSWORD_VARIABLE = "DRUMBEAT_STORE_PASSWORD"  # noqa: S105
_READ_PASSWORD = ("redis:", "rediss:", "snowflake:")  #: stores that take their password from PASSWORD_VARIABLE
POSTGRES_PASSWORD_VARIABLE = "PGPASSWORD"  # noqa: S105  #: PostgreSQL's own variable for a password
#: PostgreSQL's own variables, without secrets, which complete the URL of a store
POSTGRES_VARIABLES = (
    *("PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE", "PGSSLMODE", "PGSSLNEGOTIATION"),
    *("PGSSLROOTCERT", "PGSSLCRL", "PGSSLCERT", "PGSSLKEY", "PGSSLMINPROTOCOLVERSION", "PGSSLMAXPROTOCOLVERSION"),
    *("PGTARGETSESSIONATTRS", "PGKRBSRVNAME", "PGGSSLIB"),
)
_SECRET_OPTION = re.compile("passw|pwd|key|secret|token|credential", re.IGNORECASE)


def has_secret(url: str) -> bool:
    """Return whether a store's URL contains a password, or an option whose name suggests a secret."""
    if url.startswith("sqlite:"):
        return False
    return _has_password(url) or _SECRET_OPTION.search(url.partition("?")[2]) is not None


def reads_password(url: str) -> bool:
    """Return whether the store takes its password from PASSWORD_VARIABLE: Redis and Snowflake do, unless the URL has one."""
    return url.lower().startswith(_READ_PASSWORD) and not _has_password(url)


def is_postgres(url: str) -> bool:
    return url.lower().startswith(("postgres:", "postgresql:"))


def reads_postgres_password(url: str) -> bool:
    """Return whether the store takes its password from PGPASSWORD, if it is set: PostgreSQL does, unless the URL has one."""
    return is_postgres(url) and not _has_password(url) and not re.search("(^|[?&])password=", url.partition("?")[2])


def _has_password(url: str) -> bool:
    return ":" in url.partition("://")[2].rpartition("@")[0]
