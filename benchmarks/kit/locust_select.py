"""The point select as a Locust user with psycopg; run by Locust, see driver_vs_peers.py."""

import os
import random
import time

import psycopg
from locust import User, constant, task  # type: ignore[import-not-found]


class Select(User):  # type: ignore[misc]
    wait_time = constant(0)

    def on_start(self) -> None:
        self.connection = psycopg.connect(os.environ["TARGET_URL"], autocommit=True)

    @task  # type: ignore[untyped-decorator]
    def select(self) -> None:
        began = time.perf_counter()
        sql = "SELECT abalance FROM pgbench_accounts WHERE aid = %s"
        self.connection.execute(sql, (random.randint(1, 100_000),), prepare=True).fetchone()
        self.environment.events.request.fire(
            request_type="SQL",
            name="select",
            response_time=(time.perf_counter() - began) * 1000,
            response_length=0,
            exception=None,
        )
