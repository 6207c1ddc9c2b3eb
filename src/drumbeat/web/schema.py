"""The API's description (OpenAPI 3.1): what FastAPI finds, and what every route has beside it: problems, tokens, keys."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from drumbeat.web.api.answers import EVERYWHERE, problems
from drumbeat.web.api.once import KEY, KEY_PATTERN
from drumbeat.web.api.shapes import Problem
from drumbeat.web.auth import PROBES

_REF = "#/components/schemas/{model}"
_FASTAPIS = ("HTTPValidationError", "ValidationError")
_HOOK = "/hooks/{name}"
_KEY_PARAMETER: dict[str, Any] = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": "Sent again with the same key, the request is answered as before, and nothing is done twice.",
    "schema": {"type": "string", "pattern": KEY_PATTERN},
}


def describe(app: FastAPI) -> None:
    """Have the application describe itself whole."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _whole(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _whole(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title, version=app.version, openapi_version="3.1.0", description=app.description, routes=app.routes
    )
    schemas: dict[str, Any] = found["components"]["schemas"]
    for name in _FASTAPIS:
        schemas.pop(name, None)
    shown = Problem.model_json_schema(ref_template=_REF)
    schemas |= {**shown.pop("$defs", {}), "Problem": shown}
    found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}]
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    return found


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add to one operation what is the same for all."""
    told = problems(*EVERYWHERE)
    operation["responses"] |= {str(status): answer for status, answer in told.items()}
    operation["responses"] = dict(sorted(operation["responses"].items()))
    if path == _HOOK or path in PROBES:
        operation["security"] = []
    elif method == "post":
        operation.setdefault("parameters", []).append(_KEY_PARAMETER)
