"""A client of a Docker daemon. It calls the Docker SDK in threads, since the SDK blocks, and translates the SDK's errors."""

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

import docker
import docker.auth
import docker.errors
import docker.utils
import urllib3

from drumbeat.core.errors import InvalidSettings, SpawnCause, SpawnError, Unanswered
from drumbeat.spawn.docker.refusals import explain_connection, explain_refusal, is_unsent
from drumbeat.spawn.docker.settings import DockerSettings, check_address

T = TypeVar("T")
Connect = Callable[[], Any]  #: returns a ``docker.APIClient``

_THREADS: Final = 16  #: requests at once
_USUAL_SOCKET = "unix:///var/run/docker.sock"
_FAILURES = (docker.errors.DockerException, urllib3.exceptions.HTTPError, OSError)


class DaemonUnreachable(Unanswered):
    """The daemon could not be reached: the request was not sent."""


class DaemonSilent(Unanswered):
    """The request was sent, and no answer came, so the daemon might have carried it out."""


class DaemonRefused(SpawnError):
    """The daemon answered with an error."""

    def __init__(self, message: str, *, status: int, daemon_message: str, cause: SpawnCause) -> None:
        super().__init__(message, cause=cause)
        self.status = status
        self.daemon_message = daemon_message  #: the text of the error as the daemon sent it

    @property
    def lacks_image(self) -> bool:
        return self.status == 404 and "no such image" in self.daemon_message.lower()

    @property
    def lacks_container(self) -> bool:
        return self.status == 404 and "no such container" in self.daemon_message.lower()


class DockerClient:
    """Sends requests to one daemon. Connects when the first request is sent."""

    def __init__(self, settings: DockerSettings, connect: Connect | None = None) -> None:
        self._settings = settings
        self._connect = connect or (lambda: connect_to(settings))
        self._api: Any = None
        self._connecting = threading.Lock()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="docker")
        self._closed = threading.Event()
        self.place = f"the Docker daemon at {settings.base_url or os.environ.get('DOCKER_HOST') or _USUAL_SOCKET}"

    # Requests. All raise DaemonUnreachable, DaemonSilent and DaemonRefused.

    async def create(self, name: str, request: Mapping[str, Any]) -> str | None:
        """Create a container and return its id; None if a container of that name already exists.

        Even a cancelled call waits for the daemon's answer. Otherwise the daemon could create the container after the caller
        has looked for a container to remove, and the container would stay.
        """
        try:
            made = await self._ask(lambda api: api.create_container_from_config(dict(request), name), abandon=False)
        except DaemonRefused as exc:
            if exc.status == 409:
                return None
            raise
        return str(made["Id"])

    async def start(self, identifier: str) -> None:
        """Start a created container. Does nothing if it already runs."""
        await self._ask(lambda api: api.start(identifier))

    async def inspect(self, identifier: str) -> Mapping[str, Any] | None:
        """Return the daemon's description of a container; None if there is no such container."""
        found: Mapping[str, Any] | None = await self._find(lambda api: api.inspect_container(identifier))
        return found

    async def list(self, labels: Mapping[str, str], states: Sequence[str] = ()) -> Sequence[Mapping[str, Any]]:
        """Return the containers with these labels, in any state or in one of ``states``."""
        filters: dict[str, Any] = {"label": [f"{name}={value}" for name, value in labels.items()]}
        filters |= {"status": list(states)} if states else {}
        found: Sequence[Mapping[str, Any]] = await self._ask(lambda api: api.containers(all=True, filters=filters))
        return found

    async def signal(self, identifier: str, number: str) -> bool:
        """Send a signal to a container's main process; False if the container does not run. The request is never sent twice,
        because a second SIGTERM would end the worker's jobs at once."""
        try:
            await self._ask(lambda api: api.kill(identifier, number), repeat=False)
        except DaemonRefused as exc:
            if exc.status == 409 or exc.lacks_container:
                return False
            raise
        return True

    async def remove(self, identifier: str, *, force: bool) -> bool:
        """Remove a container and its unnamed volumes; ``force``: kill it first. Returns True if the container no longer exists.

        Returns False if it cannot be removed now: another request is removing it, or it runs and ``force`` is not set.
        """
        try:
            await self._ask(lambda api: api.remove_container(identifier, v=True, force=force))
        except DaemonRefused as exc:
            if exc.lacks_container:
                return True
            if exc.status == 409:
                return False
            raise
        return True

    async def logs(self, identifier: str, lines: int) -> str | None:
        """Return the last lines of a container's output; None if there is no such container."""
        found: bytes | None = await self._find(lambda api: api.logs(identifier, tail=lines))
        return None if found is None else found.decode(errors="replace")

    async def has_file(self, identifier: str, path: str) -> bool:
        """Whether a created container has a file at this path. Every answer of the daemon except status 404 counts as yes."""
        return await self._ask(lambda api: _has_path(api, identifier, path))

    async def pull(self, image: str) -> None:
        """Fetch an image from its registry, with the credentials of ``docker login``."""
        await self._ask(lambda api: self._pull(api, image))

    async def close(self) -> None:
        """Close the connections. Ends a pull in progress, and does not wait for other requests in progress."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        api, self._api = self._api, None
        if api is not None:
            await asyncio.to_thread(api.close)

    # In threads

    async def _find(self, work: Callable[[Any], T]) -> T | None:
        """Send a request about one container; None if there is no such container."""
        try:
            return await self._ask(work)
        except DaemonRefused as exc:
            if exc.status == 404:
                return None
            raise

    async def _ask(self, work: Callable[[Any], T], *, abandon: bool = True, repeat: bool = True) -> T:
        """Run a request in a thread. With ``abandon=False``, a cancelled call still waits until the request is answered.

        ``repeat``: whether the request is safe to send again if the daemon closed the connection without an answer.
        """
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._tried, work, repeat)
        if abandon:
            return await future
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            with suppress(SpawnError, asyncio.CancelledError):
                await future
            raise

    def _tried(self, work: Callable[[Any], T], repeat: bool) -> T:
        """Send a request; with ``repeat``, once more if the daemon closed the connection."""
        api = self._connected()
        try:
            return self._translated(work, api)
        except DaemonSilent as exc:
            if not repeat or not _was_reset(exc.__cause__):
                raise
            try:
                return self._translated(work, api)
            except DaemonUnreachable:
                raise exc from exc.__cause__

    def _translated(self, work: Callable[[Any], T], api: Any) -> T:
        try:
            return work(api)
        except docker.errors.APIError as exc:
            raise self._refused(exc.status_code or 500, exc.explanation or str(exc)) from exc
        except (KeyError, TypeError, ValueError) as exc:
            raise self._refused(502, f"an answer that is not Docker's: {exc!r}") from exc
        except _FAILURES as exc:
            failure = self._unanswered(exc)
            if isinstance(failure, DaemonUnreachable):
                self._disconnect(api)
            raise failure from exc

    def _disconnect(self, api: Any) -> None:
        """Close the SDK's client. The next request makes a new client, which asks for the API version of the daemon again."""
        with self._connecting:
            self._api = None if self._api is api else self._api
        api.close()

    def _connected(self) -> Any:
        with self._connecting:
            if self._api is None:
                try:
                    self._api = self._connect()
                except docker.errors.TLSParameterError as exc:
                    raise DaemonUnreachable(f"{self.place}: {_said(exc)}", cause=SpawnCause.BAD_REQUEST) from exc
                except InvalidSettings as exc:
                    raise DaemonUnreachable(str(exc), cause=SpawnCause.BAD_REQUEST) from exc
                except _FAILURES as exc:
                    cause, line = explain_connection(self.place, _system_error(exc), _said(exc))
                    raise DaemonUnreachable(line, cause=cause) from exc
            return self._api

    def _pull(self, api: Any, image: str) -> None:
        repository, tag = docker.utils.parse_repository_tag(image)
        tag = tag or "latest"
        registry, _ = docker.auth.resolve_repository_name(repository)
        header = docker.auth.get_config_header(api, registry)
        url = api._url("/images/create")  # noqa: SLF001  (pull of the SDK waits for ever)
        answer = api.post(
            url,
            params={"fromImage": repository, "tag": tag},
            headers={"X-Registry-Auth": header} if header else {},
            stream=True,
            timeout=self._settings.pull_timeout.total_seconds(),
        )
        api._raise_for_status(answer)  # noqa: SLF001
        for line in api._stream_helper(answer, decode=True):  # noqa: SLF001
            if "error" in line:
                raise self._refused(500, str(line["error"]))
            if self._closed.is_set():
                answer.close()
                raise DaemonSilent(f"{self.place}: the pull of {image} was stopped, because the spawner was closed")

    def _refused(self, status: int, said: str) -> DaemonRefused:
        cause, line = explain_refusal(status, said, self._settings.image)
        return DaemonRefused(line, status=status, daemon_message=said, cause=cause)

    def _unanswered(self, exc: Exception) -> DaemonUnreachable | DaemonSilent:
        error = _system_error(exc)
        names = {type(each).__name__ for each in _chain(exc)}
        if is_unsent(error) or names & {"ConnectTimeout", "NewConnectionError"}:
            cause, line = explain_connection(self.place, error, _said(exc))
            return DaemonUnreachable(line, cause=cause)
        if names & {"ReadTimeout", "ReadTimeoutError", "TimeoutError"}:
            seconds = self._settings.timeout.total_seconds()
            return DaemonSilent(f"{self.place}: no answer within {seconds:g} s; check the daemon (docker ps)")
        return DaemonSilent(f"{self.place}: the connection was lost: {_said(exc)}; trying again with the next request")


def connect_to(settings: DockerSettings) -> Any:
    """Return an SDK client for the daemon that the settings name, or else DOCKER_HOST, or else the usual socket."""
    environment = dict(os.environ)
    if settings.base_url:
        environment["DOCKER_HOST"] = settings.base_url
    if settings.tls_folder is not None:
        environment |= {"DOCKER_CERT_PATH": str(settings.tls_folder.expanduser()), "DOCKER_TLS_VERIFY": "1"}
    url = environment.get("DOCKER_HOST", "")
    check_address(url)
    if not url or url.startswith("unix:"):
        environment = {"DOCKER_HOST": url}
        _check_socket_file((url or _USUAL_SOCKET).removeprefix("unix://"))
    known = docker.utils.kwargs_from_env(environment=environment)
    return docker.APIClient(**known, timeout=settings.timeout.total_seconds(), max_pool_size=_THREADS)


def _check_socket_file(path: str) -> None:
    """Raise OSError if a socket file accepts no connection. The SDK itself would leak a socket if its connection failed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.connect(path)


def _has_path(api: Any, identifier: str, path: str) -> bool:
    """Whether a container has a file. Sends a HEAD request, for which the SDK has no method."""
    url = api._url("/containers/{0}/archive", identifier)  # noqa: SLF001
    return bool(api.head(url, params={"path": path}, timeout=api.timeout).status_code != 404)


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception, and the exceptions that caused it or are wrapped in it."""
    seen: set[int] = set()
    waiting: list[object] = [exc]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]


def _system_error(exc: BaseException) -> OSError | None:
    """Return the operating system's error that an exception of the SDK wraps; None if it wraps none."""
    return next((each for each in _chain(exc) if isinstance(each, OSError) and each.errno is not None), None)


def _was_reset(exc: BaseException | None) -> bool:
    names = {"RemoteDisconnected", "ConnectionResetError", "BrokenPipeError"}
    return exc is not None and any(type(each).__name__ in names for each in _chain(exc))


def _said(exc: BaseException) -> str:
    """Return in one line the message of the system error that an exception wraps; its own message if it wraps none."""
    error = _system_error(exc)
    return " ".join(str(error if error is not None else exc).split())
