"""Answers that are no plain 200: what each status means, and where a new thing can be found next."""

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from drumbeat.web.problems import MEDIA_TYPE

PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}

_MEANINGS: Mapping[int, str] = {
    400: "It is not JSON",
    401: "No token, or a wrong one",
    403: "A reader asked for a change, or another site's page did",
    404: "There is no such thing",
    409: "It is there already, has moved on, or is being worked on",
    412: "It was changed since the ETag in If-Match",
    413: "The body is too large",
    415: "The body's Content-Type is not application/json",
    421: "Host is not this server's name",
    422: "What was sent cannot be used; errors names the fields",
    429: "Too many wrong tokens",
    501: "An optional part is not installed",
    502: "The provider of workers said no",
    503: "The store does not answer",
}
EVERYWHERE = (400, 401, 403, 413, 415, 421, 422, 429, 503)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems a route may answer with, beside those every route may."""
    return {status: {"description": _MEANINGS[status], "content": {MEDIA_TYPE: PROBLEM}} for status in statuses}


def made(links: Mapping[str, str], field: str, parameter: str) -> dict[int | str, dict[str, Any]]:
    """A 201 whose answer leads on: each link is an operation that takes the new thing's ``field`` as ``parameter``."""
    leads = {
        name: {"operationId": operation, "parameters": {parameter: f"$response.body#/{field}"}}
        for name, operation in links.items()
    }
    place = {"Location": {"description": "Where it is.", "schema": {"type": "string"}}}
    return {201: {"description": "It is made", "headers": place, "links": leads}}


def located(response: Response, path: str) -> None:
    """Say where a new thing is."""
    response.headers["Location"] = path
