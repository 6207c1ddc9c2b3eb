"""The HTTP side: what the connector asks for, and what tests ask for under /emulator."""

import asyncio
import gzip
import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

from fakesnow.expr import normalise_ident
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from servers.snowflake_shim.account import Account, Running, Sent
from servers.snowflake_shim.bindings import values_of
from servers.snowflake_shim.encoding import answered, described, failure
from servers.snowflake_shim.executor import Executor
from servers.snowflake_shim.failures import Refusal, refusal_of
from servers.snowflake_shim.history import MeteringRow
from servers.snowflake_shim.session import Session
from servers.snowflake_shim.warehouses import Warehouse

_KEPT_REQUESTS = 2000
_LOOK_SECONDS = 0.2


class Emulator:
    """Answers HTTP requests for one account."""

    def __init__(self) -> None:
        self.account = Account()
        self.executor = Executor(self.account)

    # Sessions

    async def login(self, request: Request) -> Response:
        data = (await _body(request))["data"]
        wanted = request.query_params
        parameters = {name.upper(): str(value) for name, value in (data.get("SESSION_PARAMETERS") or {}).items()}
        try:
            user = self.account.users.signed_in(data)
        except Refusal as refusal:
            return _refused(refusal)
        database, schema, warehouse = (
            (name := wanted.get(key)) and normalise_ident(name) for key in ("databaseName", "schemaName", "warehouse")
        )
        connection = await asyncio.to_thread(lambda: self.account.fakesnow.connect(database, schema, autocommit=True))
        session = Session(
            connection=connection,
            user=user.name,
            token=secrets.token_urlsafe(32),
            master_token=secrets.token_urlsafe(32),
            role=normalise_ident(wanted.get("roleName") or user.role),
            warehouse=warehouse or user.default_warehouse,
            parameters=parameters,
            autocommit=parameters.get("AUTOCOMMIT", "true").lower() != "false",
        )
        if warehouse and warehouse not in self.account.warehouses.by_name:
            session.warehouse = None  # as the real one: noticed by the first statement that needs it
        self.account.sessions[session.token] = session
        names = {"databaseName": database, "schemaName": schema, "warehouseName": session.warehouse, "roleName": session.role}
        return JSONResponse(
            {
                "data": {
                    "token": session.token,
                    "masterToken": session.master_token,
                    "validityInSeconds": 3600,
                    "masterValidityInSeconds": 14400,
                    "displayUserName": session.user,
                    "serverVersion": "9.40.0",
                    "sessionId": session.id,
                    "parameters": [
                        {"name": "AUTOCOMMIT", "value": session.autocommit},
                        {"name": "TIMEZONE", "value": "Etc/UTC"},
                        {"name": "CLIENT_SESSION_KEEP_ALIVE_HEARTBEAT_FREQUENCY", "value": 3600},
                        {"name": "CLIENT_STAGE_ARRAY_BINDING_THRESHOLD", "value": 65_280},
                    ],
                    "sessionInfo": names,
                },
                "success": True,
                "code": None,
                "message": None,
            }
        )

    async def renew(self, request: Request) -> Response:
        """A new session token for a master token."""
        token = _token(request)
        for session in self.account.sessions.values():
            if token in (session.master_token, session.token):
                data = {"sessionToken": session.token, "masterToken": session.master_token, "validityInSecondsST": 3600}
                data["sessionId"] = session.id
                return JSONResponse({"data": {**data, "validityInSecondsMT": 14400}, "success": True})
        return _refused(Refusal(390104, "08001", "User must login again to access the service."), 401)

    async def session(self, request: Request) -> Response:
        try:
            session = self._session(request)
        except Refusal as refusal:
            return _refused(refusal, 401)
        session.used_at = time.monotonic()
        if request.query_params.get("delete"):
            await self._close(session)
        return JSONResponse({"data": None, "code": None, "message": None, "success": True})

    async def _close(self, session: Session) -> None:
        self.account.sessions.pop(session.token, None)
        session.closed = True
        async with session.one_at_a_time:
            await self.executor.end_transaction(session, commit=False)
            session.connection.close()

    def _session(self, request: Request) -> Session:
        try:
            return self.account.sessions[_token(request)]
        except KeyError:
            raise Refusal(390104, "08001", "User must login again to access the service.") from None

    # Statements

    async def query(self, request: Request) -> Response:
        try:
            session = self._session(request)
        except Refusal as refusal:
            return _refused(refusal, 401)
        body = await _body(request)
        name = request.query_params.get("requestId") or str(uuid.uuid4())
        running = self.account.requests.get(name)
        if running is not None:  # the client asks again: it did not hear the answer
            await running.done.wait()
            return JSONResponse(running.answer)
        fault = self.account.faults.take(body["sqlText"], "") if self._next_is("unavailable", body["sqlText"]) else None
        if fault is not None:
            return JSONResponse({"success": False, "message": "service unavailable"}, status_code=fault.status)
        unanswered = self.account.faults.take(body["sqlText"], "") if self._next_is("unanswered", body["sqlText"]) else None
        running = self.account.requests[name] = Running(session=session.id)
        while len(self.account.requests) > _KEPT_REQUESTS:
            self.account.requests.pop(next(iter(self.account.requests)))
        if body.get("asyncExec"):
            return self._accepted(session, body, running)
        await self._answer(session, body, running, None)
        if unanswered is not None:
            return JSONResponse({"success": False, "message": "service unavailable"}, status_code=unanswered.status)
        return JSONResponse(running.answer)

    def _next_is(self, action: str, sql: str) -> bool:
        return any(each.action == action and each.matches(sql, "") for each in self.account.faults.waiting[:1])

    def _accepted(self, session: Session, body: dict[str, Any], running: Running) -> Response:
        """Run on after the answer: the client comes back for the result by its query id."""
        query_id = str(uuid.uuid4())
        self.account.results[query_id] = running
        self._background.create_task(self._answer(session, body, running, query_id))
        url = f"/queries/{query_id}/result"
        data = {"queryId": query_id, "getResultUrl": url, "queryAbortsAfterSecs": 300, "progressDesc": None}
        return JSONResponse({"data": data, "code": "333334", "message": "Query execution in progress", "success": True})

    async def _answer(self, session: Session, body: dict[str, Any], running: Running, query_id: str | None) -> None:
        sql, bindings = body["sqlText"], body.get("bindings")
        parameters = body.get("parameters") or {}
        kept = dict(session.parameters)
        if body.get("describeOnly"):
            running.answer = await self._description(session, sql)
            running.done.set()
            return
        sent = Sent(sql=sql, bindings=bindings, tag=session.tag, session=session.id, user=session.user)
        self.account.note(sent)
        try:
            async with session.one_at_a_time:
                session.used_at = time.monotonic()
                for key, value in parameters.items():
                    session.parameters[key.upper()] = str(value)
                sent.tag = session.tag
                try:
                    answer = await self.executor.execute(session, sql, values_of(bindings), running, query_id=query_id)
                finally:
                    for key in parameters:
                        session.parameters.pop(key.upper(), None)
                        if key.upper() in kept:
                            session.parameters[key.upper()] = kept[key.upper()]
                    session.used_at = time.monotonic()
            sent.query_id = answer.query_id
            running.answer = answered(session, answer)
            self.account.results[answer.query_id] = running
        except Exception as exc:
            refusal = refusal_of(exc)
            sent.error = refusal.message
            running.answer = failure(refusal, query_id or refusal.query_id)
        finally:
            running.done.set()

    async def _description(self, session: Session, sql: str) -> dict[str, Any]:
        try:
            async with session.one_at_a_time:
                rowtype, kind, binds = await self.executor.describe(session, sql)
        except Exception as exc:
            return failure(refusal_of(exc), None)
        return described(session, rowtype, kind, binds)

    async def result(self, request: Request) -> Response:
        running = self.account.results.get(request.path_params["query_id"])
        if running is None:
            return _refused(Refusal(709, "02000", "Statement not found"))
        await running.done.wait()
        return JSONResponse(running.answer)

    async def monitor(self, request: Request) -> Response:
        running = self.account.results.get(request.path_params["query_id"])
        if running is None:
            return JSONResponse({"data": {"queries": []}, "success": True})
        done = running.done.is_set()
        status = "RUNNING" if not done else "SUCCESS" if running.answer["success"] else "FAILED_WITH_ERROR"
        return JSONResponse({"data": {"queries": [{"id": request.path_params["query_id"], "status": status}]}, "success": True})

    async def abort(self, request: Request) -> Response:
        body = await _body(request)
        running = self.account.requests.get(body.get("requestId") or request.query_params.get("requestId") or "")
        if running is not None:
            running.cancelled.set()
        return JSONResponse({"data": None, "success": True, "code": None, "message": None})

    # For tests

    async def sent(self, request: Request) -> Response:
        return JSONResponse([asdict(each) for each in self.account.sent])

    async def state(self, request: Request) -> Response:
        account = self.account
        return JSONResponse(
            {
                "sessions": [
                    {
                        "id": s.id,
                        "user": s.user,
                        "warehouse": s.warehouse,
                        "role": s.role,
                        "tag": s.tag,
                        "parameters": s.parameters,
                    }
                    for s in account.sessions.values()
                ],
                "sign_ins": account.users.sign_ins,
                "table_kinds": {".".join(name): kind for name, kind in account.table_kinds.items()},
                "warehouses": {
                    name: {"changes": each.changes, "state": each.state, "running": each.running, "queued": each.queued}
                    for name, each in account.warehouses.by_name.items()
                },
                "waiting_for_lock": account.lock.waiting,
            }
        )

    async def command(self, request: Request) -> Response:
        """One command of a test: {"do": NAME, …}."""
        given = await _body(request)
        account, do = self.account, given.pop("do")
        match do:
            case "fault":
                account.faults.add(given)
            case "user":
                account.users.add(given)
            case "warehouse":
                name = given.pop("name").upper()
                warehouse = account.warehouses.by_name.setdefault(name, Warehouse(name=name, state="STARTED"))
                for key, value in given.items():
                    setattr(warehouse, key, value)
            case "history":
                for key, value in given.items():
                    setattr(account.history, key, value)
            case "release_history":
                account.history.release()
            case "metering":
                times: dict[str, Any] = {key: datetime.fromisoformat(given.pop(key)) for key in ("start_time", "end_time")}
                account.history.metering.append(MeteringRow(**times, **given))
            case "account":
                for key, value in given.items():
                    setattr(account, key, value)
            case "forget":
                account.sent.clear()
                account.faults.waiting.clear()
                account.history.forget()
                account.users.by_name.clear()
                account.users.sign_ins.clear()
            case "end_sessions":
                for session in list(account.sessions.values()):
                    await self._close(session)
            case _:
                return JSONResponse({"error": f"unknown command {do}"}, status_code=400)
        return JSONResponse({"done": do})

    # Life

    @asynccontextmanager
    async def life(self, app: Starlette) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as self._background:
            watcher = self._background.create_task(self._end_abandoned())
            yield
            watcher.cancel()

    async def _end_abandoned(self) -> None:
        """Roll back transactions whose client has gone while others wait for them."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            session = self.account.abandoned()
            if session is not None:
                with suppress(Refusal):
                    await self.executor.end_transaction(session, commit=False)

    @property
    def app(self) -> Starlette:
        post, get = ["POST"], ["GET"]
        return Starlette(
            lifespan=self.life,
            routes=[
                Route("/session/v1/login-request", self.login, methods=post),
                Route("/session/token-request", self.renew, methods=post),
                Route("/session", self.session, methods=post),
                Route("/session/heartbeat", self.session, methods=post),
                Route("/queries/v1/query-request", self.query, methods=post),
                Route("/queries/v1/abort-request", self.abort, methods=post),
                Route("/queries/{query_id}/result", self.result, methods=get),
                Route("/monitoring/queries/{query_id}", self.monitor, methods=get),
                Route("/telemetry/send", _ok, methods=post),
                Route("/emulator/sent", self.sent, methods=get),
                Route("/emulator/state", self.state, methods=get),
                Route("/emulator/command", self.command, methods=post),
            ],
        )


async def _ok(request: Request) -> Response:
    return JSONResponse({"success": True, "data": None, "code": None, "message": None})


async def _body(request: Request) -> dict[str, Any]:
    body = await request.body()
    if request.headers.get("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    read = json.loads(body or b"{}")
    return read if isinstance(read, dict) else {}


def _token(request: Request) -> str:
    return request.headers.get("Authorization", "").partition('Token="')[2].rstrip('"')


def _refused(refusal: Refusal, status: int = 200) -> Response:
    return JSONResponse(failure(refusal, None), status_code=status)
