"""Serves the simulated account over HTTP, as far as Snowflake's own connector asks for: signing in, and statements."""

import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from snowflake.connector import errors

from spawn.spcs.account import Rows, SpcsAccount
from spawn.spcs.conftest import PASSWORD
from spawn.spcs.faults import Loses

_TIMES = frozenset({"created_on", "updated_on"})
_SHOW = 0x4000  #: Snowflake's number for statements that are not DML


class AccountServer(ThreadingHTTPServer):
    """Answers HTTP requests for one account."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, account: SpcsAccount) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.account = account
        self.tags: set[str] = set()  #: the query tags of all sessions

        self._known: dict[str, Mapping[str, Any]] = {}  #: answers by the request's id: one that is sent again runs once

    def answer(self, path: str, request_id: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The answer to a request; None if the connection breaks."""
        if path == "/session/v1/login-request":
            return self._signed_in(body["data"])
        if path != "/queries/v1/query-request":
            return {"data": None, "code": None, "message": None, "success": True}
        if request_id in self._known:
            return self._known[request_id]
        fault = self.account.taken("connection")
        if isinstance(fault, Loses) and not fault.done:
            return None
        self._known[request_id] = self._executed(body["sqlText"])
        return None if isinstance(fault, Loses) else self._known[request_id]

    def _signed_in(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        with self.account.lock:
            self.account.sign_ins.append(data)
        self.tags.add(data.get("SESSION_PARAMETERS", {}).get("QUERY_TAG", ""))
        if data.get("PASSWORD") != PASSWORD:
            return failure(390100, "08001", "Incorrect username or password was specified.")
        names = {"databaseName": None, "schemaName": None, "warehouseName": None, "roleName": "DRUMBEAT"}
        return success(
            {
                "token": uuid4().hex,
                "masterToken": uuid4().hex,
                "validityInSeconds": 3600,
                "masterValidityInSeconds": 14400,
                "serverVersion": "9.40.0",
                "sessionId": 1,
                "parameters": [{"name": "TIMEZONE", "value": "Etc/UTC"}, {"name": "AUTOCOMMIT", "value": True}],
                "sessionInfo": names,
            }
        )

    def _executed(self, statement: str) -> Mapping[str, Any]:
        try:
            rows = self.account.execute(statement)
        except errors.ProgrammingError as exc:
            return failure(exc.errno, exc.sqlstate or "", exc.raw_msg)
        return success({**encoded(rows), "queryId": str(uuid4()), "statementTypeId": _SHOW})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: AccountServer

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        url = urlsplit(self.path)
        [request_id] = parse_qs(url.query).get("requestId", [""])
        answer = self.server.answer(url.path, request_id, json.loads(content or b"{}"))
        if answer is None:
            self.close_connection = True
            return
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name of the base class)
        return


def success(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"data": data, "success": True, "code": None, "message": None}


def failure(errno: int, sqlstate: str, message: str) -> Mapping[str, Any]:
    code = f"{errno:06d}"
    data = {"errorCode": code, "sqlState": sqlstate, "queryId": str(uuid4()), "internalError": False}
    return {"data": data, "code": code, "message": message, "success": False}


def encoded(rows: Rows) -> Mapping[str, Any]:
    """Rows as Snowflake answers SHOW statements: texts in JSON."""
    columns = list(rows[0]) if rows else ["status"]
    return {
        "rowtype": [_column(name) for name in columns],
        "rowset": [[_cell(row[name]) for name in columns] for row in rows],
        "total": len(rows),
        "returned": len(rows),
        "queryResultFormat": "json",
        "parameters": [{"name": "TIMEZONE", "value": "Etc/UTC"}],
    }


def _column(name: str) -> Mapping[str, Any]:
    kind = {"type": "timestamp_ltz", "scale": 3} if name in _TIMES else {"type": "text", "length": 16_777_216, "scale": None}
    return {"name": name, "nullable": True, "precision": None, "byteLength": None, **kind}


def _cell(value: Any) -> str | None:
    return f"{value.timestamp():.3f}" if isinstance(value, datetime) else None if value is None else str(value)


@contextmanager
def served(account: SpcsAccount) -> Iterator[AccountServer]:
    """Serve an account on a port of this machine."""
    with AccountServer(account) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
