"""The API server of the simulated cluster, on a port of this machine. It checks every call, and fails on command."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from drumbeat.spawn.kubernetes import PERMISSIONS
from spawn.kubernetes.checks import QUERIES, check_change, check_rules, check_shape
from spawn.kubernetes.cluster import Cluster, Object
from spawn.kubernetes.faults import Answers, Delays, Ending, Expires, Fault, Omits
from spawn.kubernetes.kubelet import moment

NAMESPACE = "work"
TOKEN = "t0ken-of-the-simulator"
_KINDS = {"jobs": "Job", "pods": "Pod", "secrets": "Secret", "events": "Event"}
_VERBS = {"POST": "create", "GET": "list", "PATCH": "patch", "DELETE": "delete"}


class Refused(Exception):
    """The API server answers with a Status."""

    def __init__(self, status: int, reason: str, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.headers = status, reason, message, headers


@dataclass(frozen=True, slots=True)
class Call:
    """One call, taken apart."""

    verb: str
    resource: str
    group: str
    namespace: str
    name: str
    part: str
    query: Mapping[str, str]
    kind: str
    body: Any

    @property
    def operation(self) -> str:
        return f"{self.verb} {self.resource}{f'/{self.part}' if self.part else ''}"


class ApiServer:
    """Answers calls. ``violations`` are those that no client of Kubernetes should make; ``calls`` are all."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.tokens = {TOKEN}
        self.permissions = {key: set(verbs) for key, verbs in PERMISSIONS.items()}
        self.faults: list[Fault] = []
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self._pages: dict[str, list[Object]] = {}

    def asked(self, operation: str) -> list[Call]:
        return [call for call in self.calls if call.operation == operation]

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any, bytes] | None:
        """Status, headers and body; None: the connection breaks."""
        call = _taken_apart(method, target, headers, body)
        fault = self._fault(call)
        if isinstance(fault, Delays):
            time.sleep(fault.by.total_seconds())
        with self.cluster.lock:
            self.calls.append(call)
            answer: tuple[int, Any, bytes]
            try:
                if isinstance(fault, Ending) and not fault.done:
                    raise Refused(0, "", "")
                answer = 200, (), self._answered(call, fault, headers)
            except Refused as exc:
                answer = exc.status, exc.headers, _status(exc.status, exc.reason, exc.message)
            self.cluster.reconcile()
        if isinstance(fault, Answers):
            content = fault.body if fault.body is not None else _status(fault.status, fault.reason, fault.message)
            return fault.status, fault.headers, content
        return None if isinstance(fault, Ending) else answer

    def _fault(self, call: Call) -> Fault | None:
        with self.cluster.lock:
            for at, fault in enumerate(self.faults):
                if fault.operation in {None, call.operation} and (not isinstance(fault, Expires) or "continue" in call.query):
                    self.faults[at : at + 1] = [replace(fault, times=fault.times - 1)] if fault.times > 1 else []
                    return fault
        return None

    def _answered(self, call: Call, fault: Fault | None, headers: Mapping[str, str]) -> bytes:
        self._check_access(call, headers)
        allowed = QUERIES["get log" if call.part else call.verb]
        self._check([f"query: unknown parameter {name!r}" for name in call.query if name not in allowed], 400, call)
        if call.part == "log":
            return self._log(call)
        found = self._list(call, fault) if call.verb == "list" else getattr(self, f"_{call.verb}")(call)
        return json.dumps(found).encode()

    def _check_access(self, call: Call, headers: Mapping[str, str]) -> None:
        if headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        resource = f"{call.resource}/{call.part}" if call.part else call.resource
        if call.verb not in self.permissions.get((call.group, resource), ()):
            group = f' in API group "{call.group}"'
            who = f'{resource}.{call.group} is forbidden: User "ann" cannot {call.verb} resource "{resource}"'
            raise Refused(403, "Forbidden", f'{who}{group} in the namespace "{call.namespace}"')
        if call.namespace != NAMESPACE and call.verb == "create":
            raise Refused(404, "NotFound", f'namespaces "{call.namespace}" not found')

    def _check(self, problems: list[str], status: int, call: Call) -> None:
        if problems:
            self.violations += [f"{call.operation}: {problem}" for problem in problems]
            raise Refused(status, "BadRequest" if status == 400 else "Invalid", "; ".join(problems))

    # Verbs

    def _create(self, call: Call) -> Object:
        kind = _KINDS[call.resource]
        self._check([*check_shape(kind, call.body)], 400, call)
        problems = [*check_rules(kind, call.body)]
        if problems:
            raise Refused(422, "Invalid", f'{kind} "{call.body["metadata"]["name"]}" is invalid: {"; ".join(problems)}')
        name = call.body["metadata"]["name"]
        if name in self.cluster.objects[call.resource]:
            raise Refused(409, "AlreadyExists", f'{call.resource} "{name}" already exists')
        return self.cluster.add(call.resource, call.body)

    def _get(self, call: Call) -> Object:
        found = self.cluster.objects[call.resource].get(call.name) if call.namespace == NAMESPACE else None
        if found is None:
            raise Refused(404, "NotFound", f'{call.resource} "{call.name}" not found')
        return found

    def _list(self, call: Call, fault: Fault | None) -> Object:
        if isinstance(fault, Expires) or ("continue" in call.query and call.query["continue"] not in self._pages):
            raise Refused(410, "Expired", "The provided continue parameter is too old")
        matching = [each for each in self.cluster.objects[call.resource].values() if _matches(each, call.query)]
        matching = [] if isinstance(fault, Omits) or call.namespace != NAMESPACE else matching
        left = self._pages.pop(call.query["continue"]) if "continue" in call.query else json.loads(json.dumps(matching))
        limit = int(call.query.get("limit", 0)) or len(left)
        page, rest = left[:limit], left[limit:]
        token = f"token-{len(self.calls)}" if rest else ""
        if rest:
            self._pages[token] = rest
        return {"kind": "List", "metadata": {"resourceVersion": "1", **({"continue": token} if token else {})}, "items": page}

    def _patch(self, call: Call) -> Object:
        found = self._get(call)
        if call.kind != "application/merge-patch+json":
            self._check([f"content type {call.kind}: expected a merge patch"], 400, call)
        changed = _merged(found, call.body)
        self._check([*check_shape(_KINDS[call.resource], {**changed, "status": {}})], 400, call)
        problems = [*check_change(_KINDS[call.resource], found, changed)]
        if problems:
            raise Refused(422, "Invalid", "; ".join(problems))
        found |= {"spec": changed["spec"], "metadata": changed["metadata"]}
        return found

    def _delete(self, call: Call) -> Object:
        options = call.body or {}
        self._check([*check_shape("DeleteOptions", options)], 400, call)
        found = self._get(call)
        wanted = options.get("preconditions", {}).get("uid")
        if wanted not in {None, found["metadata"]["uid"]}:
            raise Refused(409, "Conflict", "Precondition failed: UID in precondition is another one")
        if call.resource == "jobs":
            self.cluster.delete_job(found, options.get("propagationPolicy", "Background"))
        else:
            self.cluster.delete_pod(found, options.get("gracePeriodSeconds"))
        return {"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}}

    def _log(self, call: Call) -> bytes:
        pod = self._get(replace(call, part=""))
        [container] = pod["status"].get("containerStatuses", [{"state": {"waiting": {"reason": "ContainerCreating"}}}])
        if "waiting" in container["state"]:
            reason = container["state"]["waiting"]["reason"]
            raise Refused(400, "BadRequest", f'container "worker" in pod "{call.name}" is waiting to start: {reason}')
        file = self.cluster.log_of(pod)
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        return b"".join(lines[-int(call.query.get("tailLines", 1_000_000)) :])


def _taken_apart(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Call:
    parts = urlsplit(target)
    steps = parts.path.strip("/").split("/")
    group, steps = (steps[1], steps[3:]) if steps[0] == "apis" else ("", steps[2:])
    _, namespace, resource, *rest = steps
    name, part = (*rest, "", "")[:2]
    verb = "get" if method == "GET" and name else _VERBS[method]
    kind = headers.get("content-type", "")
    parsed = json.loads(body) if body else None
    return Call(
        verb, resource, group, namespace, name, part, dict(parse_qsl(parts.query, keep_blank_values=True)), kind, parsed
    )


def _matches(each: Object, query: Mapping[str, str]) -> bool:
    labels = each["metadata"].get("labels", {})
    wanted = [pair.partition("=") for pair in query.get("labelSelector", "").split(",") if pair]
    fields = dict(pair.split("=") for pair in query.get("fieldSelector", "").split(",") if pair)
    known = {"involvedObject.kind": each.get("involvedObject", {}).get("kind"), "reason": each.get("reason")}
    return all(labels.get(name) == value for name, _, value in wanted) and fields.items() <= known.items()


def _merged(old: Any, change: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in change.items():
        result[name] = _merged(result.get(name), value)
        if value is None:
            del result[name]
    return result


def _status(status: int, reason: str, message: str) -> bytes:
    return json.dumps({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": status}).encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    api: ApiServer

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = self.api.answer(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        if answer is None:
            self.close_connection = True
            self.connection.close()
            return
        status, headers, content = answer
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(content))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(cluster: Cluster) -> Iterator[tuple[ApiServer, str]]:
    """Serve a cluster on a free port as long as the block lasts. Yields the server and its URL."""
    api = ApiServer(cluster)
    handler = type("Handler", (_Handler,), {"api": api, **{f"do_{method}": _Handler.serve for method in _VERBS}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield api, f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            cluster.close()


def write_kubeconfig(file: Path, url: str, token: str = TOKEN, namespace: str = NAMESPACE) -> Path:
    """Write a kubeconfig for a cluster."""
    user = {"name": "ann", "user": {"token": token}}
    context = {"name": "here", "context": {"cluster": "here", "user": "ann", "namespace": namespace}}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [user],
        "contexts": [context],
    }
    file.write_text(yaml.safe_dump(content))
    file.chmod(0o600)
    return file


__all__ = ["NAMESPACE", "TOKEN", "ApiServer", "Call", "moment", "served", "write_kubeconfig"]
