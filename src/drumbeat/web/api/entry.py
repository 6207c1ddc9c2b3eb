"""FastAPI dependencies of the routes: the application state, the control plane, the caller, and the operator check."""

from typing import Annotated

from fastapi import Depends, HTTPException
from fastapi.requests import HTTPConnection

from drumbeat.composition.plane import ControlPlane
from drumbeat.web.app_state import AppState
from drumbeat.web.roles import Caller

PREFIX = "/api/v1"


def _state(connection: HTTPConnection) -> AppState:
    state: AppState = connection.app.state.app_state
    return state


def _plane(connection: HTTPConnection) -> ControlPlane:
    return _state(connection).plane


def _caller(connection: HTTPConnection) -> Caller:
    caller: Caller = connection.state.caller
    return caller


def _operator(connection: HTTPConnection) -> None:
    if not _caller(connection).may_change:
        raise HTTPException(
            403, "expected the operator role, got reader: this request makes the server connect to another system"
        )


#: refuses read-only callers: for GET routes where the server connects to a database under test or a provider of workers
OPERATORS = (Depends(_operator),)

State = Annotated[AppState, Depends(_state)]
Plane = Annotated[ControlPlane, Depends(_plane)]
CalledBy = Annotated[Caller, Depends(_caller)]
