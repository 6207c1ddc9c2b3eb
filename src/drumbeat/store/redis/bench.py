"""What Redis does not keep: benchmarks, whose tables are large and are asked questions."""

from typing import Any, NoReturn

from drumbeat.core.errors import Refused


class NoBenchmarks:
    """In place of runs, results, steps, executions, templates and connections: refuses every word."""

    async def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise Refused("Redis keeps no benchmarks; use a SQLite or PostgreSQL store for runs, templates and connections")

    create = get = list = update = save = delete = _refuse
    add_file = list_files = load = count = note_use = set_default = _refuse
