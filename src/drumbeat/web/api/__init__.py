"""The HTTP API, version 1: one router per resource."""

from collections.abc import Sequence

from fastapi import APIRouter

from drumbeat.web.api import (
    compare,
    connections,
    fleet,
    health,
    jobs,
    metrics,
    operations,
    pools,
    prices,
    run_data,
    runs,
    schedules,
    streams,
    templates,
    triggers,
    workflows,
)

ROUTERS: Sequence[APIRouter] = (
    health.router,
    metrics.router,
    runs.router,
    run_data.router,
    compare.router,
    streams.router,
    templates.router,
    connections.router,
    prices.router,
    pools.router,
    jobs.router,
    schedules.router,
    operations.router,
    workflows.router,
    fleet.router,
    triggers.router,
)
