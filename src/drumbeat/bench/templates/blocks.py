"""The blocks (sections) of a benchmark template: target, workload, timing, scaling, guardrails and so on."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from drumbeat.bench.model import FailThreshold, GuardrailMode, Kind, Queueing, ScalingMode
from drumbeat.bench.model.warehouse import MOST_CLUSTERS
from drumbeat.bench.templates.fields import (
    DAY,
    MOST,
    MOST_HELD,
    Connections,
    Count,
    ErrorShare,
    HeldLimit,
    Milliseconds,
    Number,
    Percent,
    Seconds,
    WarehouseSize,
    Whole,
    WorkerLimit,
    one_of,
    queueing_of,
)
from drumbeat.bench.workloads.config import load_of
from drumbeat.bench.workloads.sql_generation import PRESETS
from drumbeat.bench.workloads.standard import STANDARD
from drumbeat.bench.workloads.value_sources import SOURCES, values_schema
from drumbeat.core.engine import engine_names
from drumbeat.core.errors import InvalidInput

CUSTOM = (Kind.POINT_LOOKUP, Kind.RANGE_SCAN, Kind.INSERT, Kind.UPDATE)  #: kinds that have a ``custom_*_query`` field


Values = Annotated[list[dict[str, Any]], WithJsonSchema(values_schema())]


class TemplateBlock(BaseModel):
    """Base class of the blocks (sections) of a template. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class WarehouseBlock(TemplateBlock):
    """The Snowflake warehouse under test. Settings that are not given stay unchanged; no setting is restored after the run."""

    name: str | None = Field(default=None, description="a warehouse instead of the one in the URL")
    size: WarehouseSize = Field(default=None, description="size that the warehouse gets when the run starts, such as Medium")
    min_clusters: Annotated[Count | None, Field(le=MOST_CLUSTERS)] = Field(
        default=None, description="lowest number of clusters"
    )
    max_clusters: Annotated[Count | None, Field(le=MOST_CLUSTERS)] = Field(
        default=None, description="highest number of clusters"
    )
    scaling_policy: Annotated[str | None, Field(pattern="(?i)^(standard|economy)$")] = Field(
        default=None, description="STANDARD or ECONOMY: how soon a cluster is added"
    )
    resume: bool = Field(default=False, description="resume the warehouse when the run starts, if it is suspended")


class TargetBlock(TemplateBlock):
    """The database under test, and how to connect to it."""

    url: str | None = Field(default=None, description="database URL; the password goes into DRUMBEAT_TARGET_PASSWORD")
    connection: str | None = Field(default=None, description="the name of a stored connection, instead of a URL")
    table: str | None = Field(default=None, description="table for presets and for {table} in SQL, with its schema if needed")
    query_timeout_seconds: Annotated[Seconds, Field(gt=0, le=DAY)] = Field(default=30.0, description="timeout of an operation")
    parallel_connects: Annotated[Count, Field(le=MOST_HELD)] = Field(
        default=32, description="how many connections a worker opens in parallel"
    )
    use_cached_result: bool | None = Field(
        default=None, description="whether the server may answer from its cache of results; by default yes, on Snowflake no"
    )
    warehouse: WarehouseBlock | None = Field(default=None, description="Snowflake: the warehouse and how a run changes it")


class StatementBlock(TemplateBlock):
    """One SQL statement, with a value source for each of its placeholders $1, $2 …"""

    sql: str
    values: Values = Field(default=[], description=f"one for each placeholder: {', '.join(SOURCES)}")


class OperationBlock(TemplateBlock):
    """One kind of operation and its share of the load: one SQL statement, or several in one transaction."""

    kind: Annotated[str, Field(min_length=1)] = Field(
        description="POINT_LOOKUP, RANGE_SCAN, INSERT, UPDATE, DELETE, or a custom name"
    )
    weight: Annotated[Whole, Field(ge=0)] = Field(description="share of the operations in percent; all weights add up to 100")
    sql: str | None = Field(default=None, description="one statement, with $1, $2 … for its values")
    values: Values | None = Field(default=None, description=f"one for each placeholder: {', '.join(SOURCES)}")
    statements: list[StatementBlock] | None = Field(default=None, description="several statements instead: one transaction")
    reads: bool | None = Field(default=None, description="whether it counts as a read; by default depends on the kind")


class WorkloadBlock(TemplateBlock):
    """Which SQL the workers run: a standard workload, custom operations, or a preset mix for one table."""

    name: str | None = None
    standard: str | None = Field(
        default=None, description="a standard workload, such as tpcb or tpcc", json_schema_extra={"enum": [*STANDARD, None]}
    )
    scale: Annotated[Number, Field(gt=0, le=1_000_000)] = Field(
        default=1.0, description="size of the standard workload, as prepared"
    )
    operations: list[OperationBlock] | None = Field(default=None, description="custom SQL with the sources of its values")
    preset: str | None = Field(
        default=None, description="a mix of operations for your own table", json_schema_extra={"enum": [*PRESETS, None]}
    )
    table: str | None = Field(default=None, description="table for the preset; default: target.table")
    custom_point_lookup_query: str | None = None
    custom_range_scan_query: str | None = None
    custom_insert_query: str | None = None
    custom_update_query: str | None = None
    custom_point_lookup_pct: Annotated[Whole | None, Field(ge=0, le=100)] = None
    custom_range_scan_pct: Annotated[Whole | None, Field(ge=0, le=100)] = None
    custom_insert_pct: Annotated[Whole | None, Field(ge=0, le=100)] = None
    custom_update_pct: Annotated[Whole | None, Field(ge=0, le=100)] = None
    think_time_ms: Annotated[Number, Field(ge=0, le=DAY * 1000)] = Field(
        default=0.0, description="pause of a connection between two operations"
    )

    @property
    def custom_sql(self) -> Mapping[Kind, str]:
        """Return the SQL of each kind of operation that has its ``custom_*_query`` field set."""
        given = {kind: getattr(self, f"custom_{kind.lower()}_query") for kind in CUSTOM}
        return {kind: sql for kind, sql in given.items() if sql}

    @property
    def custom_weights(self) -> Mapping[Kind, int]:
        given = {kind: getattr(self, f"custom_{kind.lower()}_pct") for kind in CUSTOM}
        return {kind: weight for kind, weight in given.items() if weight is not None}

    @property
    def ways(self) -> tuple[str, ...]:
        """Return the ways in which this block defines a workload, such as ``standard``. More than one is an error."""
        on_table = bool(self.preset or self.custom_sql or self.custom_weights)
        defined = {"standard": self.standard, "operations": self.operations, "preset or custom_*": on_table}
        return tuple(way for way, is_set in defined.items() if is_set)

    @model_validator(mode="after")
    def _is_one_workload(self) -> Self:
        if len(self.ways) > 1:
            raise ValueError(f"expected only one of standard, operations, (preset or custom_*); got {' and '.join(self.ways)}")
        _check_name("standard", self.standard, STANDARD)
        _check_name("preset", self.preset, PRESETS)
        _check_weights(self)
        _check_operations(self)
        return self


def _check_name(field: str, name: str | None, known: Mapping[str, Any]) -> None:
    if name is not None and name not in known:
        raise ValueError(f"{field}: expected one of {', '.join(known)}; got {name!r}")


def _check_weights(workload: WorkloadBlock) -> None:
    weights = workload.custom_weights
    if not weights or workload.preset:
        return
    if sum(weights.values()) != 100:
        given = ", ".join(f"custom_{kind.lower()}_pct {weight}" for kind, weight in weights.items())
        raise ValueError(f"expected custom_*_pct fields that total 100, got {sum(weights.values())} ({given})")
    if missing := [kind for kind, weight in weights.items() if weight and kind not in workload.custom_sql]:
        name = missing[0].lower()
        raise ValueError(f"custom_{name}_pct is {weights[missing[0]]}, but custom_{name}_query is missing; add it, or set 0")


def _check_operations(workload: WorkloadBlock) -> None:
    if workload.operations is None:
        return
    try:
        load_of(workload.model_dump(mode="json", exclude_none=True))
    except InvalidInput as exc:
        raise ValueError(str(exc).removeprefix("workload.").removeprefix("workload: ")) from exc


class TimingBlock(TemplateBlock):
    """How long the warm-up and the measurement of a run take."""

    warmup_seconds: Seconds = Field(
        default=30.0, description="warm-up that is not measured; QPS: the minimum, it lasts until throughput is stable"
    )
    duration_seconds: Annotated[Seconds, Field(gt=0)] = Field(
        default=300.0, description="duration of the measurement; find-max ends by itself"
    )


class FindMaxBlock(TemplateBlock):
    """How find-max searches for the highest stable number of connections."""

    start_connections: Connections = Field(default=5, description="total connections at the first step")
    connections_increment: Connections = Field(default=10, description="connections added at each step")
    step_duration_seconds: Annotated[Seconds, Field(gt=0)] = 30.0
    settle_seconds: Seconds | None = Field(
        default=None, description="start of each step that is not measured; default: 2, or a third of a short step"
    )
    qps_stability_pct: Percent = Field(default=5.0, description="how far throughput may fall below the last stable step")
    latency_stability_pct: Annotated[Number, Field(ge=0)] = Field(
        default=20.0, description="how far p95 may rise above the first step"
    )
    max_error_rate_pct: Percent = Field(default=1.0, description="a higher error rate ends the search")
    queueing: Annotated[Queueing, BeforeValidator(queueing_of)] = Field(
        default=Queueing.AUTO,
        description="which waiting sessions in the server end the search: `auto` (sessions that wait for another transaction's "
        "lock, and for internal locks once throughput stops growing), `locks` (only for transactions' locks), "
        "`all` (both, even while throughput grows) or `off`",
    )
    max_waiting_pct: Percent = Field(default=10.0, description="how many of the connections may wait in the server on average")
    bisect: bool = Field(default=True, description="search for the knee between the last stable and the first unstable level")
    min_operations: Count = Field(default=20, description="a step with fewer operations is repeated once")
    most_looks: Count = Field(default=5, description="how often a level is measured at most when its results vary")

    @model_validator(mode="after")
    def _settles_within_a_step(self) -> Self:
        if self.settle_seconds is not None and self.settle_seconds >= self.step_duration_seconds:
            raise ValueError(
                f"settle_seconds: expected less than step_duration_seconds ({self.step_duration_seconds:g}), "
                f"got {self.settle_seconds:g}"
            )
        return self


def _engine(value: str | None) -> str | None:
    if value is not None:
        try:
            engine_names(value)
        except InvalidInput as exc:
            raise ValueError(str(exc)) from exc
    return value


class ScalingBlock(TemplateBlock):
    """Limits on the number of workers and on the connections of each worker; null and -1 mean no limit."""

    mode: Annotated[ScalingMode, BeforeValidator(one_of(ScalingMode))] = ScalingMode.AUTO
    min_workers: WorkerLimit = Field(default=None, description="default 1; FIXED: exact number of workers")
    max_workers: WorkerLimit = Field(default=None, description="not used in FIXED mode")
    min_connections: HeldLimit = Field(default=None, description="min per worker, default 1; FIXED: exact number per worker")
    max_connections: HeldLimit = Field(default=None, description="max per worker; default: by the capacity of its host")
    engine: Annotated[str | None, Field(max_length=1000), AfterValidator(_engine)] = Field(
        default=None, description="the engine that runs the workers, or several (`a,b`), the first preferred; default: local"
    )

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.mode is ScalingMode.FIXED:
            return self
        for low, high in (("min_workers", "max_workers"), ("min_connections", "max_connections")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and least > most:
                raise ValueError(f"{low} > {high} ({least} > {most}); lower {low} or raise {high}")
        return self


class GuardrailsBlock(TemplateBlock):
    """CPU and memory limits of the workers' hosts, and what happens when one is exceeded."""

    enabled: bool = True
    max_cpu_percent: Percent = 80.0
    max_memory_percent: Percent = 85.0
    max_queued_percent: Annotated[Percent | None, Field(gt=0)] = Field(
        default=None, description="share of the connections that may wait in the server, as in a Snowflake warehouse; null: any"
    )
    mode: Annotated[GuardrailMode | None, BeforeValidator(one_of(GuardrailMode))] = Field(
        default=None, description="soft: reduce load; hard: fail at once; warn: only warn. Default: soft; in FIXED mode: warn"
    )
    back_off_percent: Annotated[Percent, Field(gt=0)] = Field(
        default=20.0, description="by how much the connections of an overloaded worker are reduced"
    )
    act_patience: Count = Field(default=2, description="intervals above a limit before a worker's connections are reduced")
    patience_intervals: Count = Field(default=3, description="intervals above a limit before the run fails")
    fail_threshold: Annotated[FailThreshold, BeforeValidator(one_of(FailThreshold))] = FailThreshold.ALL
    interval_seconds: Annotated[Seconds, Field(gt=0)] = 5.0


class ObjectiveBlock(TemplateBlock):
    """A service level objective: limits on latency, errors and availability; null and -1 mean no limit."""

    p95_ms: Milliseconds = None
    p99_ms: Milliseconds = None
    max_error_pct: ErrorShare = None
    min_availability_pct: ErrorShare = Field(
        default=None, description="share of the measured seconds in which an operation must succeed; only in `overall`"
    )


class PricesBlock(TemplateBlock):
    """Prices per hour of a worker and of the database under test, to compute the cost of a run."""

    worker_hour: Annotated[Number | None, Field(ge=0, le=MOST)] = None
    target_hour: Annotated[Number | None, Field(ge=0, le=MOST)] = None
    credit: Annotated[Number | None, Field(ge=0, le=MOST)] = Field(default=None, description="price of one Snowflake credit")
    currency: str = "USD"


class RecordingBlock(TemplateBlock):
    """Which share of the operations is recorded one by one, and where."""

    sampling: Annotated[Number, Field(ge=0, le=1)] = Field(
        default=1.0, description="share of operations that are recorded; 0: none"
    )
    load_into_store: bool = Field(default=False, description="copy records to the store's executions table when the run ends")


class ShardingBlock(TemplateBlock):
    """Divides the keys into partitions; each worker uses the keys of one partition (see ``bench/workloads/sharding.py``)."""

    enabled: bool = Field(default=False, description="each worker uses only `key` values of its own partition")
    total_partitions: Count | None = Field(
        default=None, description="number of partitions; a worker's partition is its slot modulo this number"
    )
    key_column: str | None = Field(default=None, description="shard only statements that name this column; default: all")
    key_range: tuple[Whole, Whole] | None = Field(
        default=None, description="first and last key of the range that is divided; default: each key's own bounds"
    )
