"""The web application: API, streams and pages behind one authentication layer."""

from fastapi import FastAPI

from drumbeat import __version__
from drumbeat.web import api
from drumbeat.web.app_state import AppState
from drumbeat.web.auth import AuthMiddleware
from drumbeat.web.disconnects import DisconnectMiddleware
from drumbeat.web.methods import Methods
from drumbeat.web.problems import explain_errors
from drumbeat.web.schema import describe

DESCRIPTION = "Manage runs, templates, pools, jobs, workers and fleets over HTTP."


def make_api(state: AppState | None = None) -> FastAPI:
    """Create the HTTP API without authentication. Without ``state`` it can only generate its OpenAPI schema."""
    app = FastAPI(
        title="Drumbeat",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
        redirect_slashes=False,
    )
    app.state.app_state = state
    explain_errors(app)
    for router in api.ROUTERS:
        app.include_router(router)
    describe(app)
    return app


def make_app(state: AppState, *, with_pages: bool = True) -> AuthMiddleware:
    """Create the web application with authentication. A process can create only one with pages (a limit of NiceGUI)."""
    app = make_api(state)
    if with_pages:
        from drumbeat.web.pages import add_pages

        add_pages(app, state)
    return AuthMiddleware(DisconnectMiddleware(Methods(app)), state.settings, state.clock, state.plane.store.notes)
