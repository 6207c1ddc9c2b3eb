"""Stand-in for the benchmark tables, which Redis does not have: they are large and need SQL queries."""

from typing import Any, NoReturn

from drumbeat.core.errors import Refused


class NoBenchmarks:
    """Stands in for runs, results, steps, executions, templates and connections. Every method raises Refused."""

    async def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Refused("Redis keeps no benchmarks; use a SQLite or PostgreSQL store for runs, templates and connections")

    create = get = list = update = save = delete = _refuse
    add_file = list_files = load = count = note_use = set_default = _refuse
