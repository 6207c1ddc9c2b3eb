"""The template document: all settings of a benchmark, under their canonical field names."""

import hashlib
import json
import re
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from drumbeat.bench.model import ALL_KINDS, Allocation, Kind, LoadMode, LostPolicy, OnWorkerLost
from drumbeat.bench.targets.urls import holds_password
from drumbeat.bench.templates.blocks import (
    FindMaxBlock,
    GuardrailsBlock,
    ObjectiveBlock,
    PricesBlock,
    RecordingBlock,
    ScalingBlock,
    ShardingBlock,
    TargetBlock,
    TemplateBlock,
    TimingBlock,
    WorkloadBlock,
)
from drumbeat.bench.templates.fields import (
    MOST,
    ConnectionLimit,
    Connections,
    Count,
    Milliseconds,
    Number,
    Seconds,
    Whole,
    one_of,
)
from drumbeat.core.errors import InvalidInput

OVERALL = "overall"  #: the name of the objective for all kinds of operation together
_LOST = re.compile(r"fail|replace|tolerate:([0-9]{1,9})")
PASSWORD_REFUSED = "target.url: holds a password, but templates are stored; set DRUMBEAT_TARGET_PASSWORD instead"  # noqa: S105


def _lost_policy(text: str) -> str:
    if not _LOST.fullmatch(text):
        raise ValueError("expected fail, replace or tolerate:N (up to N lost workers)")
    return text


def _printable(name: str | None) -> str | None:
    if name is not None and not name.isprintable():
        raise ValueError("expected one line of printable text")
    return name


def _by_kind(objectives: dict[str, ObjectiveBlock]) -> dict[str, ObjectiveBlock]:
    found: dict[str, ObjectiveBlock] = {}
    for name, objective in objectives.items():
        kind = kind_named(name) or OVERALL
        if kind in found:
            raise ValueError(f"{kind} is given twice, once as {name!r}; remove one of them")
        if kind != OVERALL and objective.min_availability_pct is not None:
            raise ValueError(f"{name}: availability covers all kinds of operations; set min_availability_pct in slo.{OVERALL}")
        found[kind] = objective
    return found


class TemplateDocument(TemplateBlock):
    """All settings of a benchmark, from which a run is created. ``parse`` reads it, and also accepts older field names."""

    model_config = ConfigDict(title="Drumbeat benchmark template")

    name: Annotated[str | None, Field(max_length=255), AfterValidator(_printable)] = None
    description: Annotated[str | None, Field(max_length=1000)] = None
    tags: list[str] = Field(default=[])
    target: TargetBlock = Field(default_factory=TargetBlock)
    workload: WorkloadBlock = Field(default_factory=WorkloadBlock)
    timing: TimingBlock = Field(default_factory=TimingBlock)
    load_mode: Annotated[LoadMode, BeforeValidator(one_of(LoadMode, find_max=LoadMode.FIND_MAX_CONCURRENCY))] = (
        LoadMode.CONCURRENCY
    )
    concurrent_connections: ConnectionLimit = Field(
        default=None, description="CONCURRENCY: total connections (default 10); QPS and find-max: max connections per worker"
    )
    target_qps: Annotated[Number, Field(gt=0, le=MOST)] = Field(default=100.0, description="QPS: target operations per second")
    starting_threads: ConnectionLimit = Field(default=None, description="QPS: total connections at the start")
    max_thread_increase: Connections = Field(default=15, description="QPS: max connections added per interval")
    control_interval_seconds: Annotated[Seconds, Field(gt=0)] = Field(
        default=5.0, description="QPS: interval between two decisions of the controller"
    )
    bounds_patience_intervals: Count = Field(
        default=3, description="QPS, BOUNDED: intervals at the max and below the target before the run ends"
    )
    expected_latency_ms: Milliseconds = Field(
        default=None, description="mean latency of an operation, if known; a target_qps that is impossible with it is refused"
    )
    ramp_seconds: Seconds = Field(default=0.0, description="duration over which a change of a worker's connections is spread")
    find_max: FindMaxBlock = Field(default_factory=FindMaxBlock)
    scaling: ScalingBlock = Field(default_factory=ScalingBlock)
    allocation: Annotated[Allocation | None, BeforeValidator(one_of(Allocation))] = Field(
        default=None, description="how workers share connections: spread, or pack (default of find-max without max_connections)"
    )
    guardrails: GuardrailsBlock = Field(default_factory=GuardrailsBlock)
    slo: Annotated[dict[str, ObjectiveBlock], AfterValidator(_by_kind)] = Field(
        default={}, description="service levels by kind of operation; overall: for all kinds together"
    )
    on_worker_lost: Annotated[
        str, AfterValidator(_lost_policy), Field(json_schema_extra={"pattern": f"^({_LOST.pattern})$"})
    ] = "fail"
    prices: PricesBlock = Field(default_factory=PricesBlock)
    recording: RecordingBlock = Field(default_factory=RecordingBlock)
    sharding: ShardingBlock | None = None
    seed: Annotated[Whole | None, Field(ge=0, le=2**63 - 1)] = Field(
        default=None, description="random seed, by default 0: the same seed gives the same keys and values"
    )

    @model_validator(mode="after")
    def _has_a_total(self) -> Self:
        unlimited = "concurrent_connections" in self.model_fields_set and self.concurrent_connections is None
        if self.load_mode is LoadMode.CONCURRENCY and unlimited:
            raise ValueError("concurrent_connections: expected the total number of connections, got no limit; set a number")
        return self

    def canonical(self) -> dict[str, Any]:
        """Return the document as plain data, with all defaults and without fields that are null."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_json(self) -> dict[str, Any]:
        """Return the document as plain data for the store. Raises InvalidInput if the target's URL contains a password."""
        check_no_password(self)
        return self.canonical()

    @property
    def config_hash(self) -> str:
        """Return a hash that is equal for documents with the same settings, whatever their name, description and tags."""
        meaning = {name: value for name, value in self.canonical().items() if name not in ("name", "description", "tags")}
        usual = not (self.target.url or "").startswith("snowflake:")  # written out, as documents of earlier versions have it
        meaning["target"] = {"use_cached_result": usual, **meaning["target"]}
        return hashlib.sha256(json.dumps(meaning, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    @property
    def lost_policy(self) -> LostPolicy:
        action, _, number = self.on_worker_lost.partition(":")
        return LostPolicy(action=OnWorkerLost(action), tolerated=int(number or 0))

    @property
    def table(self) -> str | None:
        """Return the name of the table for which presets generate SQL, and which replaces {table} in SQL; None if not set."""
        return self.workload.table or self.target.table


def kind_named(name: str) -> str:
    """Return the stored name of a kind of operation: standard kinds in upper case, '' for "all" and "overall" (every kind)."""
    if name.lower() in ("", "all", OVERALL):
        return ALL_KINDS
    return name.upper() if name.upper() in Kind.__members__ else name


def check_no_password(document: TemplateDocument) -> None:
    """Raise InvalidInput if the target's URL contains a password."""
    if holds_password(document.target.url):
        raise InvalidInput(PASSWORD_REFUSED)
