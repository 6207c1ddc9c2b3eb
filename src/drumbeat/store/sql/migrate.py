"""Schema migrations: one script, safe to run from several processes at once."""

from dataclasses import dataclass

from drumbeat.core.errors import StoreNotReady, StoreTooNew
from drumbeat.store.sql.database import Script
from drumbeat.store.sql.queries import migration_texts, view_names

LATEST = max(migration_texts())


@dataclass(frozen=True, slots=True)
class SchemaState:
    """The version of a database's schema (0: Drumbeat's tables do not exist), and whether a copy into it is unfinished."""

    version: int
    is_copying: bool = False

    def refuse_newer(self, location: str) -> None:
        """Raise StoreTooNew if the schema is newer than this code."""
        if self.version > LATEST:
            raise StoreTooNew(
                f"the store at {location} has schema version {self.version}, this Drumbeat knows up to {LATEST}; "
                "upgrade Drumbeat"
            )

    def refuse_unfinished(self, location: str) -> None:
        """Raise StoreNotReady if a copy into the store is unfinished."""
        if self.is_copying:
            raise StoreNotReady(
                f"the store at {location} holds an unfinished copy of another store; "
                "finish it with the same command: drumbeat store copy FROM TO"
            )


def find_schema() -> Script[SchemaState]:
    """Return the version of the database's schema, and whether a copy into it is unfinished."""
    found = yield "find_version_table", {}
    if not found:
        return SchemaState(0)
    return SchemaState(int((yield "read_version", {})[0]["version"]), bool(found[0]["is_copying"]))


def migrate() -> Script[list[int]]:
    """Apply the missing migrations and create the views again. Returns the numbers of the migrations applied."""
    yield "lock_migrations", {}
    yield "make_version_table", {}
    current = yield from find_schema()
    missing = [number for number in migration_texts() if number > current.version]
    for view in view_names() if missing else []:
        yield f"drop_{view}", {}
    for number in missing:
        yield f"migration_{number}", {}
        yield "add_version", {"version": number}
    for view in view_names() if missing else []:
        yield view, {}
    return missing
