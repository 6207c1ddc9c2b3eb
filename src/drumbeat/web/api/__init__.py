"""The HTTP API, version 1: one router a noun."""

from collections.abc import Sequence

from fastapi import APIRouter

from drumbeat.web.api import health

ROUTERS: Sequence[APIRouter] = (health.router,)
