"""The warehouse under a Snowflake target: its queue as a signal, changes only as a template says, history, credits and cost."""

import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumbeat.bench.control.modes.stability import queueing
from drumbeat.bench.model import FindMaxPlan, Prices
from drumbeat.bench.model.figures import Figures
from drumbeat.bench.model.warehouse import WarehouseSettings, size_named
from drumbeat.bench.results.cost import cost, credits_in, with_credits
from drumbeat.bench.targets.connections import ConnectionService
from drumbeat.bench.targets.interface import HasWarehouse, KeepsHistory
from drumbeat.bench.targets.snowflake import SnowflakeTarget
from drumbeat.bench.targets.snowflake_history import kind_of
from drumbeat.bench.targets.snowflake_session import tag_of
from drumbeat.bench.targets.snowflake_warehouse import changes_of, credits_per_hour, signals_of
from drumbeat.bench.targets.urls import with_warehouse
from drumbeat.bench.targets.vault import Vault
from drumbeat.bench.templates import parse
from drumbeat.core.errors import InvalidInput
from drumbeat.store.memory import MemoryStore
from servers.snowflake import SnowflakeServer

ROW = {
    "name": "COMPUTE_WH",
    "state": "SUSPENDED",
    "type": "STANDARD",
    "size": "X-Small",
    "min_cluster_count": 1,
    "max_cluster_count": 1,
    "started_clusters": 1,
    "running": 3,
    "queued": 2,
    "scaling_policy": "STANDARD",
}
SINGLE = {name: value for name, value in ROW.items() if "cluster" not in name and name != "scaling_policy"}  #: Standard Edition


@pytest.fixture
async def target(snowflake: SnowflakeServer) -> AsyncIterator[SnowflakeTarget]:
    async with SnowflakeTarget(snowflake.new_database()) as opened:
        yield opened


def meter(snowflake: SnowflakeServer, hour: datetime, used: float, warehouse: str = "COMPUTE_WH") -> None:
    """Let Snowflake show the credits of a warehouse in the hour that begins then."""
    span = {"start_time": hour.isoformat(), "end_time": (hour + timedelta(hours=1)).isoformat()}
    parts = {"credits_used_compute": used, "credits_used_cloud_services": 0.0}
    snowflake.command("metering", **span, **parts, warehouse_name=warehouse, credits_used=used)


class TestChanges:
    @pytest.mark.parametrize(
        ("wanted", "statements"),
        [
            (WarehouseSettings(), []),
            (WarehouseSettings(size="xsmall", min_clusters=1, scaling_policy="standard"), []),
            (WarehouseSettings(size="Medium"), ["ALTER WAREHOUSE \"COMPUTE_WH\" SET WAREHOUSE_SIZE = 'MEDIUM'"]),
            (
                WarehouseSettings(size="2xlarge", max_clusters=4, scaling_policy="economy", resume=True),
                [
                    "ALTER WAREHOUSE \"COMPUTE_WH\" SET WAREHOUSE_SIZE = '2X-LARGE' MAX_CLUSTER_COUNT = 4"
                    " SCALING_POLICY = ECONOMY",
                    'ALTER WAREHOUSE "COMPUTE_WH" RESUME IF SUSPENDED',
                ],
            ),
        ],
    )
    def test_only_what_is_wanted_and_differs_is_changed(self, wanted: WarehouseSettings, statements: list[str]) -> None:
        assert changes_of(ROW, wanted) == statements

    @pytest.mark.parametrize("stored", ["load_wh", "Load-WH"])
    def test_a_warehouse_that_was_created_with_quotes_is_changed_itself(self, stored: str) -> None:
        changes = changes_of({**ROW, "name": stored}, WarehouseSettings(resume=True))

        assert changes == [f'ALTER WAREHOUSE "{stored}" RESUME IF SUSPENDED']

    @pytest.mark.parametrize(
        "wanted",
        [WarehouseSettings(min_clusters=2), WarehouseSettings(max_clusters=2), WarehouseSettings(scaling_policy="economy")],
    )
    def test_clusters_are_refused_in_an_account_without_them(self, wanted: WarehouseSettings) -> None:
        with pytest.raises(
            InvalidInput, match=r"expected an account with multi-cluster warehouses .* got warehouse COMPUTE_WH"
        ):
            changes_of(SINGLE, wanted)

    def test_one_cluster_is_what_an_account_without_clusters_has(self) -> None:
        wanted = WarehouseSettings(size="Small", min_clusters=1, max_clusters=1, scaling_policy="standard")

        assert changes_of(SINGLE, wanted) == ["ALTER WAREHOUSE \"COMPUTE_WH\" SET WAREHOUSE_SIZE = 'SMALL'"]

    @pytest.mark.parametrize("name", ["XSMALL", "x-small", "X_Small"])
    def test_a_size_may_be_spelled_as_people_do(self, name: str) -> None:
        assert size_named(name) == "X-Small"

    def test_an_unknown_size_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="expected one of X-Small"):
            parse({"target": {"warehouse": {"size": "huge"}}})

    async def test_a_template_changes_the_warehouse_and_a_run_without_a_word_does_not(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        assert isinstance(target, HasWarehouse)
        snowflake.command("warehouse", name="COMPUTE_WH", state="SUSPENDED", size="X-Small", max_cluster_count=1, changes=[])

        assert await target.set_warehouse(WarehouseSettings()) == []
        assert snowflake.state()["warehouses"]["COMPUTE_WH"] == {"changes": [], "state": "SUSPENDED", "running": 0, "queued": 0}
        done = await target.set_warehouse(WarehouseSettings(size="Small", max_clusters=2, resume=True))

        assert snowflake.state()["warehouses"]["COMPUTE_WH"]["changes"] == list(done)
        assert snowflake.state()["warehouses"]["COMPUTE_WH"]["state"] == "STARTED"

    async def test_a_warehouse_that_is_not_there_is_named(self, snowflake: SnowflakeServer) -> None:
        async with SnowflakeTarget(snowflake.url("ELSEWHERE", warehouse="NO_SUCH_WH")) as opened:
            with pytest.raises(InvalidInput, match="no warehouse 'NO_SUCH_WH'"):
                await opened.set_warehouse(WarehouseSettings(resume=True))

    async def test_without_a_named_warehouse_it_says_how_to_name_one(
        self, snowflake: SnowflakeServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SNOWFLAKE_WAREHOUSE", raising=False)
        since = datetime(2026, 1, 1, tzinfo=UTC)
        async with SnowflakeTarget(snowflake.new_database().replace("warehouse=COMPUTE_WH&", "")) as opened:
            with pytest.raises(InvalidInput, match=r"expected the name of a warehouse, got none; .*warehouse=NAME"):
                await opened.set_warehouse(WarehouseSettings(resume=True))
            assert await opened.credits_used(since, since + timedelta(hours=1)) == {}

    async def test_a_template_may_name_another_warehouse(self, snowflake: SnowflakeServer, store: MemoryStore) -> None:
        snowflake.command("warehouse", name="OTHER_WH")
        service = ConnectionService(store, Vault())
        block: dict[str, Any] = {"url": snowflake.new_database(), "warehouse": {"name": "other_wh"}}

        async with service.open(block) as opened:
            assert await opened.fetch("SELECT CURRENT_WAREHOUSE()") == [("OTHER_WH",)]

    def test_other_databases_have_no_warehouse(self) -> None:
        assert with_warehouse("postgresql://a@b/c", "X") == "postgresql://a@b/c"
        assert with_warehouse("snowflake://a@b/c?warehouse=W&role=R", "X") == "snowflake://a@b/c?warehouse=X&role=R"

    def test_the_older_names_of_the_fields_are_known(self) -> None:
        document = parse({"target": {"warehouse_name": "BENCH_WH", "warehouse_size": "MEDIUM"}})

        assert document.target.warehouse is not None
        assert (document.target.warehouse.name, document.target.warehouse.size) == ("BENCH_WH", "Medium")


class TestSignals:
    def test_queued_statements_wait_and_are_active(self) -> None:
        signals = signals_of(ROW)

        assert (signals.active, signals.waiting, signals.sessions, signals.lock_waits) == (5, 2, None, None)
        assert dict(signals.wait_events) == {"Warehouse:queued": 2}

    def test_a_queue_ends_a_search_for_the_most_connections(self) -> None:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        calm = Figures(since=now, until=now, connections=10, waiting=0.0)
        full = Figures(since=now, until=now, connections=10, waiting=5.0)

        assert queueing(FindMaxPlan(), calm) is None
        broken = queueing(FindMaxPlan(), full)
        assert broken is not None
        assert "5.0 sessions waited in the server" in broken.reason

    async def test_a_full_warehouse_is_seen(self, snowflake: SnowflakeServer, target: SnowflakeTarget) -> None:
        await target.define(["CREATE TABLE t (k BIGINT)"])
        snowflake.command("warehouse", name="NARROW_WH", slots=1, service_seconds=2.0)
        clients = [snowflake.connect() for _ in range(3)]

        def read(client: Any) -> None:
            with client.cursor() as cursor:
                cursor.execute("USE WAREHOUSE narrow_wh")
                cursor.execute("SELECT 1 FROM INFORMATION_SCHEMA.TABLES")

        threads = [threading.Thread(target=read, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        async with SnowflakeTarget(snowflake.url("NARROW", warehouse="NARROW_WH")) as watching:
            while (signals := await watching.signals()) is None or not signals.waiting:
                time.sleep(0.01)
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()

        assert 1 <= (signals.waiting or 0) < (signals.active or 0)


class TestHistory:
    async def test_statements_are_found_by_their_tag_and_counted_by_kind(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        assert isinstance(target, KeepsHistory)
        since = datetime.fromtimestamp(time.time(), UTC) - timedelta(minutes=1)  # noqa: TID251
        snowflake.queue("SELECT 'slow'", overload_ms=250, provisioning_ms=40)
        with snowflake.connect() as client, client.cursor() as cursor:
            for kind, sql in (("READ", "SELECT 'slow'"), ("READ", "SELECT 2"), ("WRITE", "SELECT 3")):
                cursor.execute(sql, _statement_params={"QUERY_TAG": tag_of("run_1:w", kind)})
            cursor.execute("SELECT 4", _statement_params={"QUERY_TAG": tag_of("run-1:w", "READ")})  # another run
        until = since + timedelta(minutes=10)

        found = await target.recorded_statements("run_1", since, until, 3)

        assert found.statements == 3
        assert (found.totals["READ.statements"], found.totals["WRITE.statements"]) == (2, 1)
        assert (found.totals["queued_overload_time"], found.totals["queued"], found.totals["longest_queue_time"]) == (
            250,
            1,
            250,
        )
        assert found.totals["READ.queued_provisioning_time"] == 40
        assert found.note is None

    async def test_a_long_run_is_read_in_slices_without_counting_twice(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        since = datetime.fromtimestamp(time.time(), UTC) - timedelta(minutes=1)  # noqa: TID251
        with snowflake.connect() as client, client.cursor() as cursor:
            for _ in range(5):
                cursor.execute("SELECT 1", _statement_params={"QUERY_TAG": tag_of("long:w", "READ")})
        until = since + timedelta(minutes=5)

        sliced = await target.recorded_statements("long", since, until, 20_001)
        usage = await target.recorded_statements("long", since, until, 10_000_000)

        assert (sliced.statements, usage.statements) == (5, 5)

    @pytest.mark.parametrize("expected", [1, 20_001])
    async def test_a_history_that_is_cut_is_noted(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget, expected: int
    ) -> None:
        since = datetime.fromtimestamp(time.time(), UTC) - timedelta(minutes=1)  # noqa: TID251
        snowflake.lie(r"^SELECT COUNT\(\*\) FROM TABLE", ["COUNT(*)"], [[10_000]])

        found = await target.recorded_statements("cut", since, since + timedelta(minutes=5), expected)

        assert "at most 10,000 statements" in str(found.note)

    def test_the_kind_is_the_end_of_a_tag(self) -> None:
        assert kind_of(tag_of("run-1:worker-2", "POINT:LOOKUP")) == "POINT:LOOKUP"
        assert kind_of("somebody else's") == ""


class TestCredits:
    async def test_credits_are_estimated_by_size_and_metered_once_known(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        snowflake.command("warehouse", name="COMPUTE_WH", size="Medium", min_cluster_count=1, max_cluster_count=1)
        since, until = datetime(2026, 1, 1, 10, 15, tzinfo=UTC), datetime(2026, 1, 1, 10, 45, tzinfo=UTC)

        estimated = await target.credits_used(since, until)
        meter(snowflake, datetime(2026, 1, 1, 10, tzinfo=UTC), 2.6)
        metered = await target.credits_used(since, until)

        assert estimated == {"clusters": 1.0, "estimated": 2.0, "per_hour": 4.0}
        assert metered == {**estimated, "metered": 2.6, "metered_hours": 1.0}

    async def test_credits_count_as_metered_when_every_hour_of_the_run_is_there(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        first = datetime(2026, 1, 1, 10, tzinfo=UTC)
        since, until = first + timedelta(minutes=50), first + timedelta(hours=2)

        for hour in (-1, 0, 2):  # the hours before and after the run do not count
            meter(snowflake, first + timedelta(hours=hour), 7.0)
        early = await target.credits_used(since, until)
        meter(snowflake, first + timedelta(hours=1), 1.5)
        late = await target.credits_used(since, until)

        assert "metered" not in early
        assert (late["metered"], late["metered_hours"]) == (8.5, 2.0)

    async def test_an_hour_that_has_not_ended_is_not_metered(self, snowflake: SnowflakeServer, target: SnowflakeTarget) -> None:
        now = datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251
        this_hour = now.replace(minute=0, second=0, microsecond=0)
        for hour in range(2):  # the test may begin in one hour and end in the next
            meter(snowflake, this_hour + timedelta(hours=hour), 0.1)

        found = await target.credits_used(now - timedelta(minutes=1), this_hour + timedelta(hours=2))

        assert "estimated" in found
        assert "metered" not in found

    async def test_credits_are_estimated_if_the_role_may_not_read_the_metering(
        self, snowflake: SnowflakeServer, target: SnowflakeTarget
    ) -> None:
        since = datetime(2026, 1, 1, 10, tzinfo=UTC)
        snowflake.fail("WAREHOUSE_METERING_HISTORY", number=3001, sqlstate="42501", message="Insufficient privileges")

        found = await target.credits_used(since, since + timedelta(hours=1))

        assert "estimated" in found
        assert "metered" not in found

    async def test_a_warehouse_with_a_name_in_quotes_is_metered(self, snowflake: SnowflakeServer) -> None:
        since = datetime(2026, 1, 1, 10, tzinfo=UTC)
        meter(snowflake, since, 2.0, "load-wh")
        snowflake.lie("SHOW WAREHOUSES", ["name", "type", "size"], [["load-wh", "STANDARD", "X-Small"]])
        async with SnowflakeTarget(snowflake.url("QUOTED", warehouse="load-wh") + "&monitor_warehouse=COMPUTE_WH") as opened:
            found = await opened.credits_used(since, since + timedelta(hours=1))

        assert found["metered"] == 2.0

    @pytest.mark.parametrize(
        ("used", "counted"),
        [
            ({}, None),
            ({"estimated": 2.0}, 2.0),
            ({"estimated": 2.0, "metered": 9.0, "metered_hours": 1.0}, 2.0),  # others used the warehouse too
            ({"estimated": 2.0, "metered": 1.5, "metered_hours": 1.0}, 1.5),  # the run cannot have used more than all together
            ({"metered": 9.0, "metered_hours": 1.0}, 9.0),  # no rate is known for this kind of warehouse
        ],
    )
    def test_a_run_is_charged_its_estimate_and_not_what_others_used(
        self, used: dict[str, float], counted: float | None
    ) -> None:
        assert credits_in({"server": {"credits": used}}) == counted

    def test_only_standard_warehouses_of_the_first_generation_have_a_known_rate(self) -> None:
        assert credits_per_hour(ROW) == 1
        assert credits_per_hour({**ROW, "type": "SNOWPARK-OPTIMIZED"}) is None
        assert credits_per_hour({**ROW, "generation": "2"}) is None

    def test_the_cost_of_a_run_is_its_credits_times_their_price(self) -> None:
        prices = Prices(worker_hour=1.0, credit=3.0)

        found = cost(prices, worker_hours=2.0, target_hours=1.0, operations=1000, qps=10.0, used_credits=4.0)

        assert (found.workers, found.target, found.total) == (2.0, 12.0, 14.0)

    def test_credits_are_added_to_a_cost_once(self) -> None:
        prices = Prices(worker_hour=1.0, credit=3.0, currency="EUR")
        first = with_credits({"cost": {"total": 2.0, "currency": "EUR"}}, prices, {"estimated": 4.0}, 1000)
        again = with_credits(first, prices, {"estimated": 5.0}, 1000)

        assert first["cost"]["total"] == 14.0
        assert again["cost"] == {"total": 17.0, "currency": "EUR", "per_1000_operations": 17.0, "credits": 15.0}

    def test_credits_replace_the_hours_of_the_database_in_a_cost(self) -> None:
        prices = Prices(worker_hour=1.0, target_hour=4.0, credit=3.0)
        stored = {"cost": {"total": 6.0, "currency": "USD", "per_1000_operations": 6.0, "target": 4.0}}

        first = with_credits(stored, prices, {"estimated": 4.0}, 1000)
        again = with_credits(first, prices, {"estimated": 5.0}, 1000)

        assert (first["cost"]["total"], again["cost"]["total"]) == (2.0 + 12.0, 2.0 + 15.0)
