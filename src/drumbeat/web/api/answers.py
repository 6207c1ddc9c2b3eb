"""OpenAPI descriptions of responses other than 200: error responses, and 201 with links to the new resource."""

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from drumbeat.web.problems import MEDIA_TYPE

PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}

_MEANINGS: Mapping[int, str] = {
    400: "The body is not valid JSON",
    401: "The token is missing or wrong",
    403: "The caller is a reader, or the request comes from another site's page",
    404: "Not found",
    409: "Conflict: the resource already exists, its state does not allow this, or the same request is in progress",
    412: "The resource has changed: its ETag is not the one in If-Match",
    413: "The body is too large",
    415: "The Content-Type of the body is not application/json",
    421: "The Host header does not name this server",
    422: "The request is not valid; `errors` lists the wrong fields",
    429: "Too many wrong tokens",
    501: "An optional extra of Drumbeat is not installed on the server",
    502: "The provider of workers failed or refused the request",
    503: "The store (Drumbeat's database) does not answer",
}
EVERYWHERE = (400, 401, 403, 413, 415, 421, 422, 429, 503)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of error responses with these statuses."""
    return {status: {"description": _MEANINGS[status], "content": {MEDIA_TYPE: PROBLEM}} for status in statuses}


def created(links: Mapping[str, str], field: str, parameter: str) -> dict[int | str, dict[str, Any]]:
    """Describe a response 201. Its OpenAPI links pass ``field`` of the response to other operations as their ``parameter``."""
    found = {
        name: {"operationId": operation, "parameters": {parameter: f"$response.body#/{field}"}}
        for name, operation in links.items()
    }
    headers = {"Location": {"description": "Path of the new resource.", "schema": {"type": "string"}}}
    return {201: {"description": "Created", "headers": headers, "links": found}}


def set_location(response: Response, path: str) -> None:
    """Set the Location header to the path of a new resource."""
    response.headers["Location"] = path
