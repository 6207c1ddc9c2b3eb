"""The calls of the Kubernetes API that the spawner needs, each retried after temporary errors.

All of them are safe to repeat: names are unique, so a second creation is refused with HTTP 409.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidSettings, MissingExtra, SpawnCause, Unanswered
from drumbeat.spawn.kubernetes.manifests import CONTAINER
from drumbeat.spawn.kubernetes.objects import AnyObject, KubernetesEvent, KubernetesJob, KubernetesPod, ListMeta
from drumbeat.spawn.kubernetes.problems import RETRIED, KubernetesRefused, one_line, refusal
from drumbeat.spawn.kubernetes.settings import KubernetesSettings

try:
    import aiohttp
    from kubernetes.aio import client as api, config as api_config
except ImportError as exc:
    raise MissingExtra("the Kubernetes spawner", "kubernetes") from exc

log = logging.getLogger(__name__)

#: what the spawner's account must be allowed to do in the namespace: API group and resource, with the verbs
PERMISSIONS: Final[Mapping[tuple[str, str], Set[str]]] = {
    ("batch", "jobs"): {"create", "delete", "get", "list", "patch"},
    ("", "pods"): {"delete", "list", "patch"},
    ("", "pods/log"): {"get"},
    ("", "secrets"): {"create"},
    ("", "events"): {"list"},
}
_RETRY_PAUSES = (timedelta(milliseconds=200), timedelta(seconds=1))  #: pauses before the first and second retry
_LONGEST_PAUSE = timedelta(seconds=15)  #: a call is not retried if the cluster asks for a longer pause
_RETRY_WITHIN = timedelta(seconds=30)  #: no retry begins later than this after the first try
_CONNECTIONS = 16
_LISTS = 3  #: how often a list is begun again after its pages have expired
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_PLURALS = {"jobs": "/apis/batch/v1", "pods": "/api/v1", "secrets": "/api/v1", "events": "/api/v1"}
_METHODS = {"create": "POST", "get": "GET", "list": "GET", "patch": "PATCH", "delete": "DELETE"}

T = TypeVar("T")


def _pod_namespace() -> str:
    """Return the namespace of the pod in which this process runs; empty if it is not known."""
    return _NAMESPACE_FILE.read_text() if _NAMESPACE_FILE.exists() else ""


class NeverSent(Unanswered):
    """The call certainly had no effect: there was no connection, or the cluster refused it because of too many calls."""


class KubernetesClient:
    """Calls the API of one cluster, in one namespace. Use it as: ``async with client.opened()``."""

    def __init__(self, settings: KubernetesSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._api: api.ApiClient | None = None
        self._loading = asyncio.Lock()
        self.namespace = settings.namespace or "default"

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Close the client's connections when the ``async with`` block ends. The first call of the API opens them."""
        try:
            yield
        finally:
            found, self._api = self._api, None
            if found is not None:
                await found.close()

    # Jobs, Secrets

    async def create_job(self, body: Mapping[str, Any]) -> KubernetesJob | None:
        """Create a Job. Returns None if a Job of its name exists. Raises KubernetesRefused, Unanswered."""
        answer = await self._ask("create", "jobs", query={"fieldValidation": "Strict"}, body=body, accepted={409})
        return None if answer is None else self._read(answer, KubernetesJob)

    async def create_secret(self, body: Mapping[str, Any]) -> None:
        """Create a Secret, unless a Secret of its name exists. Raises KubernetesRefused, Unanswered."""
        answer = await self._ask("create", "secrets", query={"fieldValidation": "Strict"}, body=body, accepted={409})
        if answer is not None:
            self._read(answer, AnyObject)

    async def find_job(self, name: str) -> KubernetesJob | None:
        """Return the Job of this name; None if there is none."""
        answer = await self._ask("get", "jobs", name, accepted={404})
        return None if answer is None else self._read(answer, KubernetesJob)

    async def jobs(self, selector: str) -> Sequence[KubernetesJob]:
        return await self._list("jobs", KubernetesJob, {"labelSelector": selector})

    async def start_job(self, name: str, change: Mapping[str, Any]) -> KubernetesJob | None:
        """Apply the patch that makes Kubernetes create the Job's pod. Returns None if the Job no longer exists."""
        answer = await self._ask("patch", "jobs", name, body=change, accepted={404})
        return None if answer is None else self._read(answer, KubernetesJob)

    async def shorten_job(self, name: str) -> None:
        """End a Job now, by a deadline of 1 s after its start: Kubernetes ends its pods with SIGTERM, and starts no new pod."""
        await self._ask("patch", "jobs", name, body={"spec": {"activeDeadlineSeconds": 1}}, accepted={404})

    async def delete_job(self, job: KubernetesJob) -> None:
        """Delete this Job, not a later one of its name. It stays listed until its pods are gone."""
        options = {"propagationPolicy": "Foreground", "preconditions": {"uid": job.metadata.uid}}
        await self._ask("delete", "jobs", job.metadata.name, body=options, accepted={404, 409})

    # Pods, events

    async def pods(self, selector: str) -> Sequence[KubernetesPod]:
        return await self._list("pods", KubernetesPod, {"labelSelector": selector})

    async def shorten_pod(self, name: str) -> None:
        """End a pod now, by a deadline of 1 s after its start: its node sends SIGTERM, and keeps the exit code and the log."""
        await self._ask("patch", "pods", name, body={"spec": {"activeDeadlineSeconds": 1}}, accepted={404})

    async def delete_pod(self, pod: KubernetesPod, grace_seconds: int) -> None:
        """Delete this pod; its container gets SIGTERM and, after ``grace_seconds``, SIGKILL."""
        options = {"gracePeriodSeconds": grace_seconds, "preconditions": {"uid": pod.metadata.uid}}
        await self._ask("delete", "pods", pod.metadata.name, body=options, accepted={404, 409})

    async def log(self, pod: KubernetesPod, lines: int) -> str | None:
        """Return the last lines of the worker's log; None if its container has not started, or the pod is gone."""
        query = {"container": CONTAINER, "tailLines": str(lines)}
        answer = await self._ask("get", "pods", pod.metadata.name, part="log", query=query, accepted={400, 404})
        return None if answer is None else answer.decode(errors="replace")

    async def failed_pods(self) -> Sequence[KubernetesEvent]:
        """Return the events that say why pods could not be created, for all Jobs of the namespace."""
        query = {"fieldSelector": "involvedObject.kind=Job,reason=FailedCreate"}
        return await self._list("events", KubernetesEvent, query)

    # Calls

    async def _list(self, resource: str, kind: type[T], query: Mapping[str, str]) -> Sequence[T]:
        """Return a whole list, which is read page by page. If its pages expire (HTTP 410), starts again."""
        for left in reversed(range(_LISTS)):
            try:
                return await self._pages(resource, kind, query)
            except KubernetesRefused as exc:
                if exc.status != HTTPStatus.GONE or not left:
                    raise Unanswered(str(exc), cause=exc.cause, retry_after=exc.retry_after) from exc
        raise AssertionError("unreachable: the last try returns or raises")

    async def _pages(self, resource: str, kind: type[T], query: Mapping[str, str]) -> Sequence[T]:
        shape = msgspec.defstruct("_Page", [("items", list[kind] | None), ("metadata", ListMeta)])  # type: ignore[valid-type]
        found: list[T] = []
        more = ""
        while True:
            page_query = {**query, "limit": str(self._settings.page_size), **({"continue": more} if more else {})}
            answer = await self._ask("list", resource, query=page_query)
            page: Any = self._read(answer or b"", shape)
            found += page.items or ()
            more = page.metadata.continue_
            if not more:
                return found

    async def _ask(
        self,
        verb: str,
        resource: str,
        name: str = "",
        *,
        part: str = "",
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        accepted: Set[int] = frozenset(),
    ) -> bytes | None:
        """Make a call; temporary errors are retried. Returns None for an HTTP error that is ``accepted``.

        Raises KubernetesRefused for another HTTP error, NeverSent or Unanswered if there is no answer.
        """
        began, renewed, sent = self._clock.elapsed(), False, False
        pauses = [*_RETRY_PAUSES]
        while True:
            try:
                return await self._once(verb, resource, name, part, query or {}, body, accepted)
            except KubernetesRefused as exc:
                failure: KubernetesRefused | Unanswered = exc
                sent = sent or exc.status != HTTPStatus.TOO_MANY_REQUESTS
                if exc.status == HTTPStatus.UNAUTHORIZED and not renewed:  # the token has expired: read it again
                    renewed = True
                    await self._reload()
                    continue
                if exc.status not in RETRIED:
                    raise
            except NeverSent as exc:
                failure = exc
            except Unanswered as exc:
                failure, sent = exc, True
            wait = max(failure.retry_after or timedelta(), pauses.pop(0)) if pauses else None
            late = wait is None or self._clock.elapsed() - began + wait > _RETRY_WITHIN
            if wait is None or late or wait > _LONGEST_PAUSE:
                kind = Unanswered if sent else NeverSent
                raise kind(str(failure), cause=failure.cause, retry_after=failure.retry_after) from failure
            log.info("a call to Kubernetes failed: %s; retrying in %.1f s", failure, wait.total_seconds())
            await self._clock.sleep(wait)

    async def _once(
        self,
        verb: str,
        resource: str,
        name: str,
        part: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
        accepted: Set[int],
    ) -> bytes | None:
        client = self._api or await self._load()
        path = "/".join(filter(None, [f"{_PLURALS[resource]}/namespaces/{self.namespace}/{resource}", name, part]))
        kind = "application/merge-patch+json" if verb == "patch" else "application/json"
        headers = {"Accept": "application/json", "Content-Type": kind}
        seconds = self._settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                method, url, sent_headers, sent_body, _ = await client.param_serialize(
                    _METHODS[verb], path, {}, list(query.items()), headers, body, auth_settings=["BearerToken"]
                )
                answer = await client.call_api(method, url, sent_headers, sent_body, _request_timeout=seconds)
                content: bytes = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL, ssl.SSLError) as exc:
            raise NeverSent(f"{self._place}: cannot connect: {one_line(str(exc))}; check the network and the context") from exc
        except TimeoutError as exc:
            raise Unanswered(f"{self._place}: no answer to {verb} {resource} within {seconds:g} s") from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise Unanswered(f"{self._place}: {verb} {resource}: {one_line(str(exc) or type(exc).__name__)}") from exc
        if answer.status < 300:
            return content
        if answer.status in accepted:
            return None
        call = f"{verb} {resource}{f'/{part}' if part else ''}"
        raise refusal(self._place, self.namespace, call, answer.status, content, answer.headers.get("Retry-After"))

    @property
    def _place(self) -> str:
        host = self._api.configuration.host if self._api is not None else ""
        return f"Kubernetes{f' at {host}' if host else ''}"

    def _read(self, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as exc:
            raise Unanswered(f"{self._place}: expected an answer as in its API schema, got: {exc}; update Drumbeat") from exc

    # Credentials

    async def _load(self) -> api.ApiClient:
        async with self._loading:
            if self._api is None:
                self._api = await self._connected()
            return self._api

    async def _reload(self) -> None:
        """Read the credentials again, as the token might have been renewed after the last time they were read."""
        async with self._loading:
            old, self._api = self._api, await self._connected()
            if old is not None:
                await old.close()

    async def _connected(self) -> api.ApiClient:
        """Return a client with the cluster's address and credentials; set ``namespace``. Raises InvalidSettings, Unanswered."""
        configuration = api.Configuration()
        configuration.connection_pool_maxsize = _CONNECTIONS
        given = self._settings.kubeconfig is not None or bool(self._settings.context) or "KUBECONFIG" in os.environ
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ and not given:
                api_config.load_incluster_config(configuration)
                found = _pod_namespace()
            else:
                found = await self._load_kubeconfig(configuration)
        except api_config.ConfigException as exc:
            raise InvalidSettings(
                f"Kubernetes: expected a kubeconfig that names a cluster, got: {one_line(str(exc))}; set kubeconfig "
                f"or context, and try: kubectl get jobs"
            ) from exc
        except (OSError, ValueError, TypeError, KeyError) as exc:
            raise Unanswered(
                f"Kubernetes: cannot read the credentials: {one_line(str(exc))}; try: kubectl get jobs", cause=SpawnCause.AUTH
            ) from exc
        self.namespace = self._settings.namespace or found.strip() or "default"
        return api.ApiClient(configuration)

    async def _load_kubeconfig(self, configuration: api.Configuration) -> str:
        """Read a kubeconfig into the configuration. Returns the namespace of its context, which may be empty."""
        file = self._settings.kubeconfig.expanduser() if self._settings.kubeconfig else None
        loader = await api_config.load_kube_config(
            config_file=str(file) if file else None,
            context=self._settings.context or None,
            client_configuration=configuration,
            persist_config=False,
        )
        return str(loader.current_context["context"].get("namespace") or "")
