"""The application: API, streams and pages behind one gate."""

from fastapi import FastAPI

from drumbeat import __version__
from drumbeat.web import api
from drumbeat.web.app_state import AppState
from drumbeat.web.auth import AuthMiddleware
from drumbeat.web.disconnects import DisconnectMiddleware
from drumbeat.web.methods import Methods
from drumbeat.web.problems import explain_errors
from drumbeat.web.schema import describe

DESCRIPTION = "Runs, templates, pools, jobs, workers and fleets: what the command line can do, over HTTP."


def make_api(house: AppState | None = None) -> FastAPI:
    """The HTTP API alone, without its gate; without a house it can only be described."""
    app = FastAPI(
        title="Drumbeat",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,
    )
    app.state.house = house
    explain_errors(app)
    for router in api.ROUTERS:
        app.include_router(router)
    describe(app)
    return app


def make_app(house: AppState, *, with_pages: bool = True) -> AuthMiddleware:
    """Everything a server answers. Pages are NiceGUI's, which allows one application a process."""
    app = make_api(house)
    if with_pages:
        from drumbeat.web.pages import add_pages

        add_pages(app, house)
    return AuthMiddleware(DisconnectMiddleware(Methods(app)), house.settings, house.clock)
