"""What every route is given: the house it stands in, and who calls."""

from typing import Annotated

from fastapi import Depends, HTTPException
from fastapi.requests import HTTPConnection

from drumbeat.composition.plane import ControlPlane
from drumbeat.web.app_state import AppState
from drumbeat.web.roles import Caller

PREFIX = "/api/v1"


def _house(connection: HTTPConnection) -> AppState:
    house: AppState = connection.app.state.house
    return house


def _plane(connection: HTTPConnection) -> ControlPlane:
    return _house(connection).plane


def _caller(connection: HTTPConnection) -> Caller:
    caller: Caller = connection.state.caller
    return caller


def _operator(connection: HTTPConnection) -> None:
    if not _caller(connection).may_change:
        raise HTTPException(
            403, "expected an operator, got a reader: to answer this, the server would connect to somewhere else"
        )


#: of a route that is read with GET, and yet makes the server connect to a database under test or a provider of workers
OPERATORS = (Depends(_operator),)

InHouse = Annotated[AppState, Depends(_house)]
Plane = Annotated[ControlPlane, Depends(_plane)]
CalledBy = Annotated[Caller, Depends(_caller)]
