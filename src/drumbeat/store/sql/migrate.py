"""Schema migrations: one script, safe to run from several processes at once."""

from drumbeat.store.sql.database import Script
from drumbeat.store.sql.queries import migration_texts, view_names

LATEST = max(migration_texts())


def find_version() -> Script[int]:
    """Return the version of the database's schema; 0 if Drumbeat's tables do not exist."""
    if not (yield "find_version_table", {}):
        return 0
    return int((yield "read_version", {})[0]["version"])


def migrate() -> Script[list[int]]:
    """Apply the missing migrations and create the views again. Returns the numbers of the migrations applied."""
    yield "lock_migrations", {}
    yield "make_version_table", {}
    current = yield from find_version()
    missing = [number for number in migration_texts() if number > current]
    for view in view_names() if missing else []:
        yield f"drop_{view}", {}
    for number in missing:
        yield f"migration_{number}", {}
        yield "add_version", {"version": number}
    for view in view_names() if missing else []:
        yield view, {}
    return missing
