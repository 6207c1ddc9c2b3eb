"""A client of the Snowflake emulator for tests: the real connector, with short ways to ask and to be refused."""

from typing import Any

import pytest

from servers.snowflake import SnowflakeServer


class Client:
    """A connection of the real connector, with one method for a test's statements."""

    def __init__(self, server: SnowflakeServer, database: str, **options: Any) -> None:
        self.connection = server.connect(database, **options)

    def __call__(self, sql: str, values: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values) if values is not None else cursor.execute(sql)
            return list(cursor.fetchall())

    def changed(self, sql: str) -> int:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return int(cursor.rowcount)

    def refused(self, sql: str) -> tuple[int, str | None]:
        from snowflake.connector.errors import Error

        with pytest.raises(Error) as caught:
            self(sql)
        return caught.value.errno, caught.value.sqlstate
