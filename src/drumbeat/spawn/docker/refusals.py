"""What a Docker daemon's refusals and connection errors mean: a cause for the controller, and advice for the user."""

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass

from drumbeat.core.errors import SpawnCause

_NOT_SENT = frozenset(
    {errno.ENOENT, errno.ECONNREFUSED, errno.EACCES, errno.EPERM, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EAGAIN}
)


@dataclass(frozen=True, slots=True)
class KnownRefusal:
    """A kind of refusal: the pattern of its text, its cause, and advice to the user, with ``{image}`` for the image's name."""

    pattern: re.Pattern[str]
    cause: SpawnCause
    advice: str


def _known(pattern: str, cause: SpawnCause, advice: str) -> KnownRefusal:
    return KnownRefusal(re.compile(pattern, re.IGNORECASE), cause, advice)


#: the first that matches counts
KNOWN: Sequence[KnownRefusal] = (
    _known(
        r"no such image",
        SpawnCause.BAD_REQUEST,
        'the daemon does not have the image {image}; run: docker pull {image}, or set pull = "missing"',
    ),
    _known(
        r"toomanyrequests|too many requests|pull rate limit",
        SpawnCause.RATE_LIMITED,
        "the registry limits pulls of {image}; run docker login, or try later",
    ),
    _known(
        r"manifest unknown|manifest for .* not found|repository .* not found: does not exist|name unknown",
        SpawnCause.BAD_REQUEST,
        "the registry has no image {image}; correct its name and tag",
    ),
    _known(
        r"pull access denied|unauthorized|authentication required|denied: |no basic auth|incorrect username",
        SpawnCause.AUTH,
        "the registry refuses {image}; correct its name, or run docker login here",
    ),
    _known(
        r"no matching manifest", SpawnCause.BAD_REQUEST, "the image {image} is not built for the daemon's kind of processor"
    ),
    _known(
        r"could not select device driver|nvidia-container-cli|unknown runtime.*nvidia|libnvidia",
        SpawnCause.BAD_REQUEST,
        "the daemon has no GPU runtime; install the NVIDIA Container Toolkit on its host, or remove gpus",
    ),
    _known(
        r"bind source path does not exist|invalid mount|error mounting|mount denied|not a shared mount",
        SpawnCause.BAD_REQUEST,
        "a mount is wrong; its source must exist on the daemon's host",
    ),
    _known(r"network .*not found", SpawnCause.BAD_REQUEST, "create the network, or correct the setting network"),
    _known(
        r"unable to find user|no matching entries in (passwd|group)",
        SpawnCause.BAD_REQUEST,
        "the image has no such user; correct the setting user, or use a number",
    ),
    _known(r"range of cpus|minimum memory limit", SpawnCause.BAD_REQUEST, "correct the setting cpus or memory"),
    _known(r"no space left on device", SpawnCause.NO_CAPACITY, "the daemon's disk is full; run there: docker system prune"),
    _known(r"cannot allocate memory", SpawnCause.NO_CAPACITY, "the daemon's host has no memory left"),
    _known(
        r"dial tcp|lookup .* (no such host|on )|i/o timeout|tls handshake timeout|net/http|connection refused",
        SpawnCause.TRANSIENT,
        "the daemon cannot reach the registry of {image}; check its network, or load the image with docker load",
    ),
)


def explain_refusal(status: int, explanation: str, image: str) -> tuple[SpawnCause, str]:
    """Return the cause of a refusal, and one line with the daemon's words and advice."""
    said = " ".join(explanation.split()) or f"HTTP status {status}"
    for known in KNOWN:
        if known.pattern.search(said):
            return known.cause, f"{known.advice.format(image=image)} (the daemon says: {said})"
    cause = SpawnCause.TRANSIENT if status >= 500 else SpawnCause.BAD_REQUEST
    return (SpawnCause.AUTH if status in {401, 403} else cause), f"the daemon says: {said}"


def explain_connection(place: str, error: OSError | None, said: str) -> tuple[SpawnCause, str]:
    """Return the cause of a failed connection to the daemon, and one line with advice."""
    number = error.errno if error is not None else None
    if number == errno.ENOENT:
        advice = "there is no such socket; start Docker, or set base_url or DOCKER_HOST (see: docker context inspect)"
        return SpawnCause.TRANSIENT, f"{place}: {advice}"
    if number in {errno.EACCES, errno.EPERM}:
        advice = "permission denied; add this user to the group docker (and log in again), or use rootless Docker"
        return SpawnCause.AUTH, f"{place}: {advice}"
    if number == errno.ECONNREFUSED:
        return SpawnCause.TRANSIENT, f"{place}: nothing listens there; start Docker, or correct base_url or DOCKER_HOST"
    if re.search(r"certificate|ssl|tls", said, re.IGNORECASE):
        advice = "check tls_folder, or DOCKER_TLS_VERIFY and DOCKER_CERT_PATH"
        return SpawnCause.AUTH, f"{place}: TLS failed: {said}; {advice}"
    return SpawnCause.TRANSIENT, f"{place}: {said}; check that the daemon runs and can be reached"


def is_unsent(error: OSError | None) -> bool:
    """Whether a connection error means that the request did not reach the daemon."""
    return error is not None and error.errno in _NOT_SENT
