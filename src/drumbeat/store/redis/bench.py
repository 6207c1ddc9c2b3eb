"""Refuses all benchmark operations: the Redis store has no benchmark tables, which are large and need SQL queries."""

from typing import Any, NoReturn

from drumbeat.core.errors import Refused


class NoBenchmarks:
    """Stands in for the benchmark tables that the Redis store lacks (runs, results …): every method raises Refused."""

    async def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Refused("Redis cannot store benchmarks; for runs, templates and connections use a SQLite or PostgreSQL store")

    create = get = list = update = save = delete = _refuse
    add_file = list_files = load = count = note_use = set_default = _refuse
