"""The OpenAPI 3.1 schema: FastAPI's, plus what all routes share: error responses, tokens, idempotency keys."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from drumbeat.web.api.answers import EVERYWHERE, problems
from drumbeat.web.api.once import KEY, KEY_PATTERN
from drumbeat.web.api.shapes import Problem
from drumbeat.web.auth import PROBES

_REF = "#/components/schemas/{model}"
_UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")
_HOOK = "/hooks/{name}"
_KEY_PARAMETER: dict[str, Any] = {
    "name": KEY,
    "in": "header",
    "required": False,
    "description": "A request repeated with the same key gets the first response again and has no further effect.",
    "schema": {"type": "string", "pattern": KEY_PATTERN},
}


def describe(app: FastAPI) -> None:
    """Make the application serve the complete OpenAPI schema."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _schema(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _schema(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title, version=app.version, openapi_version="3.1.0", description=app.description, routes=app.routes
    )
    schemas: dict[str, Any] = found["components"]["schemas"]
    for name in _UNUSED_SCHEMAS:
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template=_REF)
    schemas |= {**problem.pop("$defs", {}), "Problem": problem}
    found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    found["security"] = [{"token": []}]
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    return found


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add to an operation of the schema what all operations share: error responses, and for POST the Idempotency-Key."""
    operation["responses"] |= {str(status): answer for status, answer in problems(*EVERYWHERE).items()}
    operation["responses"] = dict(sorted(operation["responses"].items()))
    if path == _HOOK or path in PROBES:
        operation["security"] = []
    elif method == "post":
        operation.setdefault("parameters", []).append(_KEY_PARAMETER)
