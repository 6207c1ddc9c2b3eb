"""The models of a run's trend and of a check for a regression."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from drumbeat.bench.model import RunVerdict
from drumbeat.web.api.shapes import Shape


class TrendRun(Shape):
    """A run that is part of a trend, with its metrics."""

    run_id: str
    created_at: datetime | None
    verdict: RunVerdict
    figures: dict[str, float | None] = Field(description="Metrics by name, such as operations/s and p95 (ms).")


class TrendFigure(Shape):
    """The trend of one metric from run to run."""

    runs: int
    median: float
    recent: float = Field(description="Weighted mean; each older run has 0.8 times the weight of the next.")
    variation: float | None = Field(description="Coefficient of variation; null for a single run.")
    slope: float = Field(description="Slope of the regression line, per run.")
    r_squared: float
    steadiness: str = Field(description="stable, moderate, unstable or unknown.")


class RunTrend(Shape):
    """The metrics of a run and of earlier comparable runs, oldest first, with their trends."""

    runs: list[TrendRun]
    trends: dict[str, TrendFigure] = Field(description="Trends by name of the metric.")


class Regression(Shape):
    """Result of a regression check: whether a run is worse than the run it is compared with."""

    verdict: Literal["passed", "run_failed", "objectives_missed", "regressed", "inconclusive"]
    exit_code: int = Field(description="Exit code that `drumbeat bench regress` would return.")
    comparison: list[dict[str, Any]] = Field(description="As /api/v1/compare returns it; empty if there is no other run.")
