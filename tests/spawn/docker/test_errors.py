"""Every error of the Docker spawner is one line that says what is wrong and what to do."""

import errno
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import NotFound, SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.spawn.docker import DockerSettings, DockerSpawner, PullPolicy
from drumbeat.spawn.docker.refusals import explain_connection, explain_refusal
from drumbeat.spawn.interface import Order
from spawn.docker.fake_daemon import ANN, CREATED, NO_IMAGE, ORDER, POOL, STARTED, Answer, fake_daemon

NEW = {"Id": CREATED[1]["Id"], "Name": "/x", "State": {"Status": "created"}, "Config": {"Image": "worker:1"}}
GONE = (404, {"message": "No such container: c"})
AGAIN = Order(pool_id=POOL, worker_id=ANN, slot=0, group_count=1, command=("/bin/true",))
REFUSALS: Sequence[tuple[int, str, SpawnCause, str]] = (
    (404, "No such image: worker:1", SpawnCause.BAD_REQUEST, "run: docker pull worker:1"),
    (404, "pull access denied for worker, repository does not exist or may require login", SpawnCause.AUTH, "run docker login"),
    (500, "unauthorized: authentication required", SpawnCause.AUTH, "run docker login"),
    (404, "manifest for worker:1 not found: manifest unknown", SpawnCause.BAD_REQUEST, "correct its name and tag"),
    (500, "toomanyrequests: You have reached your pull rate limit", SpawnCause.RATE_LIMITED, "try later"),
    (500, "Get https://registry/v2/: dial tcp: lookup registry: no such host", SpawnCause.TRANSIENT, "check its network"),
    (500, 'could not select device driver "" with capabilities: [[gpu]]', SpawnCause.BAD_REQUEST, "NVIDIA Container Toolkit"),
    (
        400,
        'invalid mount config for type "bind": bind source path does not exist: /x',
        SpawnCause.BAD_REQUEST,
        "a mount is wrong",
    ),
    (404, "network lan not found", SpawnCause.BAD_REQUEST, "create the network"),
    (400, "unable to find user ann: no matching entries in passwd file", SpawnCause.BAD_REQUEST, "the setting user"),
    (400, "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available", SpawnCause.BAD_REQUEST, "cpus or memory"),
    (500, "write /x: no space left on device", SpawnCause.NO_CAPACITY, "docker system prune"),
    (500, "something new", SpawnCause.TRANSIENT, "the daemon says: something new"),
    (400, "something else", SpawnCause.BAD_REQUEST, "the daemon says: something else"),
    (403, "no", SpawnCause.AUTH, "the daemon says: no"),
)
CONNECTIONS: Sequence[tuple[OSError | None, str, SpawnCause, str]] = (
    (OSError(errno.ENOENT, "x"), "", SpawnCause.TRANSIENT, "there is no such socket; start Docker"),
    (OSError(errno.EACCES, "x"), "", SpawnCause.AUTH, "add this user to the group docker"),
    (OSError(errno.ECONNREFUSED, "x"), "", SpawnCause.TRANSIENT, "nothing listens there"),
    (None, "certificate verify failed", SpawnCause.AUTH, "check tls_folder"),
    (None, "odd", SpawnCause.TRANSIENT, "check that the daemon runs"),
)


@pytest.mark.parametrize(("status", "said", "cause", "advice"), REFUSALS)
def test_a_refusal_has_a_cause_and_one_line_of_advice(status: int, said: str, cause: SpawnCause, advice: str) -> None:
    found, line = explain_refusal(status, f"{said}\n", "worker:1")

    assert (found, "\n" in line, said in line) == (cause, False, True)
    assert advice in line


@pytest.mark.parametrize(("error", "said", "cause", "advice"), CONNECTIONS)
def test_a_failed_connection_has_a_cause_and_one_line_of_advice(
    error: OSError | None, said: str, cause: SpawnCause, advice: str
) -> None:
    found, line = explain_connection("the Docker daemon at x", error, said)

    assert found == cause
    assert line.startswith("the Docker daemon at x: ")
    assert advice in line


@pytest.mark.parametrize("answer", [(500, {"message": "layer store is locked"}), (403, {"message": "no"})])
async def test_a_worker_whose_container_cannot_be_looked_up_is_not_said_to_have_failed(answer: Answer) -> None:
    with fake_daemon({"GET /json": [answer]}) as daemon:
        async with DockerSpawner(daemon.settings(), {}, "s") as spawner:
            with pytest.raises(SpawnAmbiguous, match="worker ann of jobs was not started again, because it might"):
                await spawner.spawn(AGAIN)

    assert daemon.count("POST /create") == 0


class TestNoDaemon:
    """A daemon that cannot be reached."""

    @pytest.mark.parametrize(
        ("base_url", "says"),
        [("unix:///nowhere/docker.sock", "no such socket"), ("tcp://127.0.0.1:1", "nothing listens there")],
    )
    async def test_the_line_says_how_to_reach_a_daemon(self, base_url: str, says: str) -> None:
        async with DockerSpawner(DockerSettings(image="x", base_url=base_url), {}, "s") as spawner:
            with pytest.raises(Unanswered, match=says):
                await spawner.list(POOL)
            with pytest.raises(Unanswered, match=says):
                await spawner.terminate(POOL, ANN)

    async def test_a_worker_that_was_never_asked_for_is_certainly_not_started(self) -> None:
        async with DockerSpawner(DockerSettings(image="x", base_url="unix:///nowhere/docker.sock"), {}, "s") as spawner:
            with pytest.raises(SpawnFailed, match=r"ann of jobs could not be started: .* no such socket"):
                await spawner.spawn(ORDER)

    async def test_a_worker_that_was_asked_for_before_may_be_running(self) -> None:
        async with DockerSpawner(DockerSettings(image="x", base_url="unix:///nowhere/docker.sock"), {}, "s") as spawner:
            with pytest.raises(SpawnAmbiguous, match="ann of jobs was not started again, because it might already be running"):
                await spawner.spawn(AGAIN)

    async def test_certificates_that_are_not_there_are_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
        monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")

        async with DockerSpawner(DockerSettings(image="x", base_url="tcp://127.0.0.1:1"), {}, "s") as spawner:
            with pytest.raises(Unanswered, match=r"the Docker daemon at tcp://127\.0\.0\.1:1: .*cert"):
                await spawner.list(POOL)

    async def test_an_address_over_ssh_is_refused_with_a_way_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DOCKER_HOST", "ssh://ann@host")

        async with DockerSpawner(DockerSettings(image="x"), {}, "s") as spawner:
            with pytest.raises(Unanswered, match="forward its socket: ssh -nNT -L"):
                await spawner.list(POOL)


class TestImages:
    """Which images are pulled, and when."""

    async def spawned(self, answers: dict[str, Sequence[Answer]], pull: PullPolicy) -> int:
        """Start a worker with these answers; returns the number of pulls."""
        usual: dict[str, Sequence[Answer]] = {
            "POST /start": [STARTED],
            "HEAD /archive": [(200, None)],
            f"GET /{CREATED[1]['Id']}/json": [(200, NEW)],
        }
        with fake_daemon({**usual, **answers}) as daemon:
            async with DockerSpawner(daemon.settings(pull=pull), {}, "s") as spawner:
                try:
                    await spawner.spawn(ORDER)
                finally:
                    self.pulls = daemon.count("POST /images/create")
        return self.pulls

    async def test_a_missing_image_is_pulled_once(self) -> None:
        answers: dict[str, Any] = {
            "POST /containers/create": [NO_IMAGE, CREATED],
            "POST /images/create": [(200, {"status": "Downloaded"})],
        }

        assert await self.spawned(answers, PullPolicy.MISSING) == 1

    async def test_an_image_that_is_there_is_not_pulled(self) -> None:
        assert await self.spawned({"POST /containers/create": [CREATED]}, PullPolicy.MISSING) == 0

    async def test_an_image_may_be_pulled_before_each_start(self) -> None:
        answers: dict[str, Any] = {
            "POST /containers/create": [CREATED],
            "POST /images/create": [(200, {"status": "Up to date"})],
        }

        assert await self.spawned(answers, PullPolicy.ALWAYS) == 1

    async def test_a_missing_image_that_may_not_be_pulled_is_named(self) -> None:
        with pytest.raises(SpawnFailed, match=r"run: docker pull worker:1") as refused:
            await self.spawned({"POST /containers/create": [NO_IMAGE]}, PullPolicy.NEVER)

        assert (refused.value.cause, self.pulls) == (SpawnCause.BAD_REQUEST, 0)

    @pytest.mark.parametrize(
        "answer", [(404, {"message": "pull access denied for worker"}), (200, {"error": "pull access denied for worker"})]
    )
    async def test_a_registry_that_refuses_is_told(self, answer: Answer) -> None:
        answers: dict[str, Any] = {"POST /containers/create": [NO_IMAGE], "POST /images/create": [answer]}

        with pytest.raises(
            SpawnFailed, match="the registry refuses worker:1; correct its name, or run docker login"
        ) as refused:
            await self.spawned(answers, PullPolicy.MISSING)

        assert refused.value.cause is SpawnCause.AUTH


async def test_a_container_of_that_name_which_is_not_ours_is_neither_used_nor_removed() -> None:
    foreign = {
        "Id": "f" * 64,
        "Name": "/drumbeat-jobs-ann",
        "State": {"Status": "running"},
        "Config": {"Image": "x", "Labels": {"drumbeat.worker": "ann"}},
    }
    answers: dict[str, Sequence[Answer]] = {
        "POST /containers/create": [(409, {"message": "Conflict. The container name is already in use"})],
        "GET /json": [(200, foreign)],
    }
    with fake_daemon(answers) as daemon:
        async with DockerSpawner(daemon.settings(), {}, "s") as spawner:
            with pytest.raises(SpawnFailed, match="Drumbeat did not start it; rename or remove it"):
                await spawner.spawn(ORDER)
            assert [each for each, _ in daemon.asked if each.startswith("DELETE")] == []


@pytest.mark.parametrize(
    ("containers", "says"),
    [
        ([(200, NEW)], "has no program /bin/true; install Drumbeat in the image"),
        ([(200, NEW), GONE], "was removed 8 times"),
    ],
)
async def test_a_missing_program_is_told_apart_from_a_removed_container(containers: Sequence[Answer], says: str) -> None:
    answers = {
        "POST /containers/create": [CREATED],
        f"GET /{CREATED[1]['Id']}/json": containers,
        "HEAD /archive": [(404, None)],
        "POST /start": [GONE],
        f"DELETE /{CREATED[1]['Id']}": [(204, None)],
    }
    with fake_daemon(answers) as daemon:
        async with DockerSpawner(daemon.settings(), {}, "s") as spawner:
            with pytest.raises(SpawnFailed, match=says):
                await spawner.spawn(ORDER)


async def test_a_server_that_is_no_docker_daemon_is_told() -> None:
    with fake_daemon({"GET /containers/json": [(500, {"error": "I am a teapot"})]}) as daemon:
        async with DockerSpawner(daemon.settings(), {}, "s") as spawner:
            with pytest.raises(SpawnError, match="an answer that is not Docker's"):
                await spawner.list(POOL)


async def test_output_that_is_not_there_names_worker_and_daemon() -> None:
    with fake_daemon({}) as daemon:
        async with DockerSpawner(daemon.settings(), {}, "s") as spawner:
            with pytest.raises(NotFound, match=r"tcp://127\.0\.0\.1:\d+ has no container of worker ann of pool jobs"):
                await spawner.logs(POOL, ANN)


class Resetting:
    """An SDK client whose daemon closes the first connection without an answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def containers(self, **_: Any) -> Any:
        return self._answer("list", [])

    def inspect_container(self, name: str) -> Any:
        labels = vars(self).get("labels", {})
        return {"Id": "c" * 64, "Name": name, "State": {"Status": "running"}, "Config": {"Image": "x", "Labels": labels}}

    def kill(self, *_: Any) -> Any:
        return self._answer("signal", None)

    def close(self) -> None: ...

    def _answer(self, what: str, answer: Any) -> Any:
        self.asked.append(what)
        if len(self.asked) == 1:
            raise ConnectionResetError(errno.ECONNRESET, "reset by peer")
        return answer


async def test_a_request_whose_connection_was_closed_is_sent_once_more() -> None:
    client = Resetting()
    async with DockerSpawner(DockerSettings(image="x"), {}, "s", connect=lambda: client) as spawner:
        assert await spawner.list(POOL) == []

    assert client.asked == ["list", "list"]


async def test_a_request_to_finish_is_never_sent_twice_because_the_second_ends_jobs_at_once() -> None:
    client = Resetting()
    async with DockerSpawner(DockerSettings(image="x"), {}, "s", connect=lambda: client) as spawner:
        vars(client)["labels"] = spawner._labels((POOL, ANN))
        with pytest.raises(Unanswered, match=r"the connection was lost: .*reset by peer"):
            await spawner.drain(POOL, ANN)

    assert client.asked == ["signal"]


async def test_a_daemon_that_is_too_slow_is_told() -> None:
    class Slow:
        def containers(self, **_: Any) -> Any:
            raise TimeoutError("timed out")

        def close(self) -> None: ...

    settings = DockerSettings(image="x", timeout=timedelta(seconds=3))
    async with DockerSpawner(settings, {}, "s", connect=Slow) as spawner:
        with pytest.raises(Unanswered, match="no answer within 3 s; check the daemon"):
            await spawner.list(POOL)
