"""No error and no log says a store's password, however the URL holds it and however the store refuses."""

import logging
import socket
import threading
import traceback
from collections.abc import Iterator

import pytest

from drumbeat.core.errors import DrumbeatError
from drumbeat.settings import Settings, public_url
from drumbeat.store.open import open_store

PASSWORD = "hun@ter/2#?x"
ENCODED = "hun%40ter%2F2%23%3Fx"
TOLD = (
    "hunter2",
    "hun@ter",
    "hun%40ter",
    "ter/2",
    "ter%2F2",
    "2#?x",
    "2%23%3Fx",
)  #: the password, its spellings and its halves

REFUSALS: dict[str, bytes | None] = {
    "hangs up": b"",
    "speaks another language": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "Redis says the password is wrong": b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    "Redis repeats what it was told": b"-ERR AUTH hun@ter/2#?x hunter2 failed\r\n",
    "PostgreSQL says the password is wrong": b"E\x00\x00\x00\x2cSFATAL\x00C28P01\x00Mpassword does not match\x00\x00",
    "is not there": None,
}
URLS = [
    "postgresql://drum:hunter2@{place}/x",
    "postgresql://drum:" + ENCODED + "@{place}/x",
    "postgresql://drum@{place}/x?password=hunter2",
    "postgresql://drum@{place}/x?password=" + ENCODED,
    "redis://:hunter2@{place}/0",
    "redis://drum:" + ENCODED + "@{place}/0",
    "rediss://:hunter2@{place}",
]
UNREADABLE = [
    "redis://{place}/0?password=hunter2",
    "redis://drum:hun@ter/2#?x@{place}/0",
    "redis://:hunter2@{place}/0?command_timeout=soon",
    "redis://:hunter2@{place}/name",
    "redis://:hunter2@{place}/0?prefix=*",
    "redis://:hunter2@127.0.0.1:99999/0",
    "postgresql://drum:hun@ter/2#?x@{place}/x",
    "postgresql://drum:hunter2@{place}/x?connections=many",
    "postgresql://drum:hunter2@127.0.0.1:99999/x",
    "postgresql://drum:hunter2@[::1/x",
    "mysql://drum:hunter2@{place}/x",
    "sqlite://drum:hunter2@{place}/x",
    "drum:hunter2@{place}",
]


@pytest.fixture
def refusing(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that refuses in one way."""
    answer: bytes | None = request.param
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        if answer is None:
            listening.close()
            yield place
            return
        thread = threading.Thread(target=_refuse, args=(listening, answer), daemon=True)
        thread.start()
        yield place
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def _refuse(listening: socket.socket, answer: bytes) -> None:
    while True:
        try:
            caller, _ = listening.accept()
        except OSError:
            return
        with caller:
            caller.recv(4096)
            caller.sendall(answer)


async def said(url: str) -> str:
    """All that an attempt to open the store says, its causes included."""
    with pytest.raises(DrumbeatError) as caught:
        async with open_store(f"{url}{'&' if '?' in url else '?'}connect_timeout=2"):
            pass
    return "".join(traceback.format_exception(caught.value, chain=True)).replace(url, "")


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("refusing", [pytest.param(answer, id=name) for name, answer in REFUSALS.items()], indirect=True)
async def test_a_store_that_refuses_says_no_password(refusing: str, url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = await said(url.format(place=refusing))

    messages = [line for line in told.splitlines() if not line.startswith("    ")]
    assert refusing in told
    assert [part for part in TOLD if part in "\n".join(messages) or part in caplog.text] == []


@pytest.mark.parametrize("url", UNREADABLE)
async def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = await said(url.format(place="127.0.0.1:1"))

    messages = [line for line in told.splitlines() if not line.startswith("    ")]
    assert [part for part in TOLD if part in "\n".join(messages) or part in caplog.text] == []


@pytest.mark.parametrize("url", URLS)
def test_a_url_with_a_password_is_not_public(url: str) -> None:
    given = url.format(place="db.example:1")

    assert public_url(given) is None
    assert not any(part in repr(Settings(store=given)) for part in TOLD)
