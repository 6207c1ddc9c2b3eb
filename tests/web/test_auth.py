"""The gate: who passes, by what, from where; and what everybody is told who does not."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.store.memory import MemoryStore
from drumbeat.web.auth import AuthMiddleware
from drumbeat.web.bodies import LARGEST, LARGEST_HOOK
from drumbeat.web.login_attempts import MOST_ADDRESSES, WINDOW, WRONG_AT_MOST, LoginAttempts, network
from drumbeat.web.logouts import EVERY
from drumbeat.web.roles import Role
from drumbeat.web.sessions import COOKIE, LIFETIME, Sessions, cookie_in
from drumbeat.web.settings import WebSettings
from web.given import LOCKED, OPEN, READ_TOKEN, TOKEN, Web, bearer, web

INFO = "/api/v1/info"
POOLS = "/api/v1/pools"
PAGE = {"Accept": "text/html"}


async def inside(scope: Any, receive: Any, send: Any) -> None:
    """An application that says who is let in."""
    caller = scope["state"]["caller"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"{caller.role} by {caller.means}".encode()})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def calling(settings: WebSettings, clock: ManualClock, address: str = "203.0.113.7") -> httpx.AsyncClient:
    """Somebody at an address, before a gate of their own."""
    return at(AuthMiddleware(inside, settings, clock, MemoryStore(clock).notes), address)


def at(gate: AuthMiddleware, address: str) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=gate, client=(address, 4711))
    return httpx.AsyncClient(transport=transport, base_url="http://drums.example")


async def logged_in(caller: httpx.AsyncClient, token: str = TOKEN) -> str:
    answer = await caller.post("/login", data={"token": token, "next": "/runs"})
    assert answer.status_code == 303, answer.text
    return answer.cookies[COOKIE]


class TestTokens:
    @pytest.mark.parametrize(
        ("headers", "says"),
        [
            (bearer(TOKEN), "operator by token"),
            ({"Authorization": f"bearer   {TOKEN}"}, "operator by token"),
            (bearer(READ_TOKEN), "reader by token"),
            ({}, None),
            (bearer(""), None),
            (bearer(TOKEN[:-1]), None),
            (bearer(TOKEN + "x"), None),
            (bearer("é"), None),
            ({"Authorization": f"Basic {TOKEN}"}, None),
            ({"Cookie": f"{COOKIE}={TOKEN}"}, None),
            ({"Cookie": "drumbeat_session=AAAA.AAAA; \x01=;;;="}, None),
        ],
    )
    async def test_a_token_lets_in_whom_it_is_for(self, clock: ManualClock, headers: dict[str, str], says: str | None) -> None:
        encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
        answer = await calling(LOCKED, clock).get("/", headers=encoded)

        assert answer.status_code == (200 if says else 401)
        if says:
            assert answer.text == says
        else:
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")

    async def test_without_tokens_everybody_on_this_machine_is_an_operator(self, clock: ManualClock) -> None:
        transport = httpx.ASGITransport(app=AuthMiddleware(inside, OPEN, clock, MemoryStore(clock).notes))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8321") as here:
            assert (await here.get("/")).text == "operator by loopback"

    @pytest.mark.parametrize("role", list(Role))
    async def test_a_role_without_a_token_is_nobodys(self, clock: ManualClock, role: Role) -> None:
        """Not even an empty token's."""
        settings = WebSettings(token=TOKEN) if role is Role.READER else WebSettings(read_token=READ_TOKEN)

        other = Role.OPERATOR if role is Role.READER else Role.READER
        assert Sessions(settings).role_of(TOKEN if role is Role.READER else READ_TOKEN) is other
        assert Sessions(settings).role_of("") is None


class TestHosts:
    @pytest.mark.parametrize("host", ["evil.example", "evil.example:8321", "", "[", "127.0.0.1.evil.example", "localhost.evil"])
    async def test_another_name_does_not_reach_an_open_server(self, clock: ManualClock, host: str) -> None:
        answer = await calling(OPEN, clock).get("/", headers={"Host": host})

        assert answer.status_code == 421

    @pytest.mark.parametrize("host", ["127.0.0.1:8321", "localhost", "[::1]:8321", "127.8.9.1"])
    async def test_this_machines_own_names_do(self, clock: ManualClock, host: str) -> None:
        assert (await calling(OPEN, clock).get("/", headers={"Host": host})).status_code == 200

    async def test_a_proxys_name_does_when_it_was_told(self, clock: ManualClock) -> None:
        settings = replace(LOCKED, names=("drums.example",))

        assert (await calling(settings, clock).get("/", headers=bearer(TOKEN))).status_code == 200
        shouted = await calling(settings, clock).post(
            "/", headers={**bearer(TOKEN), "Host": "DRUMS.example", "Origin": "https://Drums.Example"}
        )
        assert shouted.status_code == 200
        other = await calling(settings, clock).get("/", headers={**bearer(TOKEN), "Host": "evil.example"})
        assert other.status_code == 421


FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "nonsense"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Origin": "http://drums.example:81"},
    {"Origin": ""},
]
OWN: list[dict[str, str]] = [
    {},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://drums.example"},
    {"Origin": "https://drums.example"},
    {"Origin": "https://behind.example", "Sec-Fetch-Site": "same-origin"},
]


class TestOtherSites:
    @pytest.mark.parametrize("headers", FOREIGN)
    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    async def test_their_pages_change_nothing_whatever_cookie_comes_along(
        self, clock: ManualClock, headers: dict[str, str], method: str
    ) -> None:
        caller = calling(LOCKED, clock)
        await logged_in(caller)

        assert (await caller.request(method, "/", headers=headers)).status_code == 403

    @pytest.mark.parametrize("headers", OWN)
    async def test_our_own_pages_do(self, clock: ManualClock, headers: dict[str, str]) -> None:
        caller = calling(LOCKED, clock)
        await logged_in(caller)

        assert (await caller.post("/", headers=headers)).text == "operator by session"

    @pytest.mark.parametrize(
        ("origin", "opens"), [("https://evil.example", False), ("http://drums.example", True)], ids=["theirs", "ours"]
    )
    async def test_their_pages_open_no_websocket(self, clock: ManualClock, origin: str, opens: bool) -> None:
        cookie = await logged_in(calling(LOCKED, clock))
        headers = {"host": "drums.example", "origin": origin, "cookie": f"{COOKIE}={cookie}"}
        said = list[str]()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "websocket.accept"})

        async def hear() -> dict[str, str]:
            return {"type": "websocket.connect"}

        async def say(message: Any) -> None:
            said.append(message["type"])

        scope = {
            "type": "websocket",
            "path": "/stream",
            "client": ("203.0.113.7", 4711),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        await AuthMiddleware(application, LOCKED, clock, MemoryStore(clock).notes)(scope, hear, say)

        assert said == ["websocket.accept" if opens else "websocket.close"]

    async def test_they_cannot_log_anybody_in(self, clock: ManualClock) -> None:
        answer = await calling(LOCKED, clock).post("/login", data={"token": TOKEN}, headers=FOREIGN[0])

        assert answer.status_code == 403

    async def test_a_proxys_name_is_our_own(self, clock: ManualClock) -> None:
        caller = calling(replace(LOCKED, names=("drums.example", "public.example")), clock)

        answer = await caller.post("/", headers={**bearer(TOKEN), "Origin": "https://public.example"})

        assert answer.status_code == 200

    async def test_they_change_nothing_on_an_open_server_either(self, clock: ManualClock) -> None:
        answer = await calling(OPEN, clock).post("/", headers={"Host": "127.0.0.1:8321", "Origin": "https://evil.example"})

        assert answer.status_code == 403


class TestSessions:
    async def test_a_login_gives_a_cookie_no_script_and_no_other_site_gets(self, clock: ManualClock) -> None:
        caller = calling(LOCKED, clock)

        answer = await caller.post("/login", data={"token": TOKEN, "next": "/runs?x=1"})

        assert (answer.status_code, answer.headers["Location"]) == (303, "/runs?x=1")
        words = answer.headers["Set-Cookie"].lower()
        assert "httponly" in words
        assert "samesite=strict" in words
        assert TOKEN not in answer.headers["Set-Cookie"]
        assert (await caller.get("/")).text == "operator by session"

    async def test_over_tls_the_cookie_stays_on_tls(self, clock: ManualClock) -> None:
        plain = await calling(LOCKED, clock).post("/login", data={"token": TOKEN})
        proxied = await calling(LOCKED, clock).post("/login", data={"token": TOKEN}, headers={"X-Forwarded-Proto": "https"})

        assert "secure" not in plain.headers["Set-Cookie"].lower()
        assert "secure" in proxied.headers["Set-Cookie"].lower()

    async def test_a_reader_stays_one(self, clock: ManualClock) -> None:
        caller = calling(LOCKED, clock)
        await logged_in(caller, READ_TOKEN)

        assert (await caller.get("/")).text == "reader by session"
        assert (await caller.post("/")).status_code == 403

    async def test_a_session_ends_with_its_time(self, clock: ManualClock) -> None:
        caller = calling(LOCKED, clock)
        await logged_in(caller)

        await clock.advance(LIFETIME)

        assert (await caller.get("/")).status_code == 401

    async def test_a_session_ends_with_a_logout_also_for_whoever_copied_the_cookie(self, clock: ManualClock) -> None:
        gate = AuthMiddleware(inside, LOCKED, clock, MemoryStore(clock).notes)
        caller, thief = at(gate, "203.0.113.7"), at(gate, "203.0.113.8")
        cookie = await logged_in(caller)

        left = await caller.post("/logout")

        assert left.status_code == 303
        assert COOKIE not in caller.cookies
        assert (await thief.get("/", headers={"Cookie": f"{COOKIE}={cookie}"})).status_code == 401

    async def test_a_logout_holds_after_a_restart_and_on_other_servers(self, clock: ManualClock) -> None:
        store = MemoryStore(clock)
        here, there = (AuthMiddleware(inside, LOCKED, clock, store.notes) for _ in range(2))
        caller, elsewhere = at(here, "203.0.113.7"), at(there, "203.0.113.7")
        cookie, other = await logged_in(caller), await logged_in(at(here, "203.0.113.8"))
        with_cookie = {"Cookie": f"{COOKIE}={cookie}"}
        before = await elsewhere.get("/", headers=with_cookie)

        await caller.post("/logout")
        await clock.advance(EVERY)
        restarted = at(AuthMiddleware(inside, LOCKED, clock, store.notes), "203.0.113.7")

        assert before.status_code == 200
        assert [(await each.get("/", headers=with_cookie)).status_code for each in (restarted, elsewhere)] == [401, 401]
        assert (await restarted.get("/", headers={"Cookie": f"{COOKIE}={other}"})).status_code == 200

    async def test_a_logout_that_the_store_refused_holds_and_is_stored_later(self, clock: ManualClock) -> None:
        store = MemoryStore(clock)
        caller = at(AuthMiddleware(inside, LOCKED, clock, store.notes), "203.0.113.7")
        cookie, other = await logged_in(caller), await logged_in(caller)
        with_cookie, with_other = ({"Cookie": f"{COOKIE}={each}"} for each in (cookie, other))
        await caller.get("/", headers=with_cookie)
        with store.unavailable():
            left = await caller.post("/logout", headers=with_cookie)
            refused = await caller.get("/", headers=with_cookie)
            await clock.advance(EVERY)
            goes_on = await caller.get("/", headers=with_other)

        await clock.advance(EVERY)
        await caller.get("/", headers=with_other)
        restarted = at(AuthMiddleware(inside, LOCKED, clock, store.notes), "203.0.113.7")

        assert (left.status_code, refused.status_code, goes_on.status_code) == (303, 401, 200)
        assert (await restarted.get("/", headers=with_cookie)).status_code == 401

    async def test_no_session_is_believed_before_the_logouts_were_read(self, clock: ManualClock) -> None:
        store = MemoryStore(clock)
        caller = at(AuthMiddleware(inside, LOCKED, clock, store.notes), "203.0.113.7")
        await logged_in(caller)

        with store.unavailable():
            refused = [(await caller.get("/")).status_code, (await caller.get("/", headers=bearer(TOKEN))).status_code]

        assert (refused, (await caller.get("/")).status_code) == ([503, 200], 200)

    async def test_a_logout_is_forgotten_when_its_session_has_expired(self, clock: ManualClock) -> None:
        store = MemoryStore(clock)
        caller = at(AuthMiddleware(inside, LOCKED, clock, store.notes), "203.0.113.7")
        await logged_in(caller)
        await caller.post("/logout")
        kept = len(await store.notes.list())
        await clock.advance(LIFETIME)

        await logged_in(caller)
        await caller.get("/")

        assert (kept, await store.notes.list()) == (1, [])

    @pytest.mark.parametrize("change", [{"token": "another-token-0123456789"}, {"read_token": "another-token-0123456789"}])
    async def test_a_session_ends_when_a_token_changes(self, clock: ManualClock, change: dict[str, str]) -> None:
        cookie = await logged_in(calling(LOCKED, clock))

        other = calling(replace(LOCKED, **change), clock)  # type: ignore[arg-type]

        assert (await other.get("/", headers={"Cookie": f"{COOKIE}={cookie}"})).status_code == 401

    async def test_no_changed_cookie_is_one_of_ours(self, clock: ManualClock) -> None:
        cookie = await logged_in(calling(LOCKED, clock), READ_TOKEN)
        body, _, signature = cookie.partition(".")
        wrong = [
            body,
            f"{body}.",
            f".{signature}",
            f"{body[:-4]}AAAA.{signature}",
            f"{body}.{signature[:-2]}AA",
            "." * 2000,
            "é.é",
        ]

        for each in wrong:
            answer = await calling(LOCKED, clock).get("/", headers={b"Cookie": f"{COOKIE}={each}".encode()})
            assert answer.status_code == 401, each

    @pytest.mark.parametrize("body", [b"", b"nonsense", b"[]", b"{}", b'{"id":1,"role":"king","until":9e99}', b"[" * 900])
    def test_what_is_signed_and_makes_no_sense_lets_nobody_in(self, clock: ManualClock, body: bytes) -> None:
        import base64

        sessions = Sessions(LOCKED)
        encoded = base64.urlsafe_b64encode(body)

        assert sessions.read(f"{encoded.decode()}.{sessions._sign(encoded)}", clock.now()) is None

    @pytest.mark.parametrize(
        ("header", "found"),
        [("", None), (f"{COOKIE}=x", "x"), (f"a=b; {COOKIE}=x; c", "x"), (f'junk=";{COOKIE}="x"', "x"), ("other=x", None)],
    )
    def test_the_cookie_is_found_among_others(self, header: str, found: str | None) -> None:
        assert cookie_in(header) == found

    @pytest.mark.parametrize(
        "to", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "", "/a\nb", "//[", "javascript:alert(1)"]
    )
    async def test_a_login_leads_to_our_own_pages_only(self, clock: ManualClock, to: str) -> None:
        answer = await calling(LOCKED, clock).post("/login", data={"token": TOKEN, "next": to})

        assert answer.headers["Location"] == "/"

    async def test_who_is_logged_in_needs_no_login(self, clock: ManualClock) -> None:
        caller = calling(LOCKED, clock)
        await logged_in(caller)

        assert (await caller.get("/login")).status_code == 303

    async def test_a_form_that_is_too_long_is_not_read(self, clock: ManualClock) -> None:
        assert (await calling(LOCKED, clock).post("/login", content=b"x" * 10_000)).status_code == 413

    async def test_a_page_asks_for_the_token_and_says_nothing_of_what_was_tried(self, clock: ManualClock) -> None:
        answer = await calling(LOCKED, clock).post("/login", data={"token": "<script>my-guess</script>"}, headers=PAGE)

        assert answer.status_code == 401
        assert "Wrong token." in answer.text
        assert "my-guess" not in answer.text

    async def test_where_somebody_wanted_to_go_is_written_safely(self, clock: ManualClock) -> None:
        answer = await calling(LOCKED, clock).get('/runs/"><script>', headers=PAGE)

        assert answer.status_code == 401
        assert "<script>" not in answer.text

    @pytest.mark.parametrize(
        ("wanted", "written"),
        [
            ("/compare?runs=a,b&x=%22", "/compare?runs=a,b&amp;x=%22"),
            ("/runs/a%20b%2Fc", "/runs/a%20b/c"),
            ("/login", "/"),
            ("/logout", "/"),
        ],
    )
    async def test_where_somebody_wanted_to_go_is_kept_whole(self, clock: ManualClock, wanted: str, written: str) -> None:
        answer = await calling(LOCKED, clock).get(wanted, headers=PAGE)

        assert f'name="next" value="{written}"' in answer.text

    async def test_where_somebody_wanted_to_go_outlives_a_wrong_token(self, clock: ManualClock) -> None:
        fields = {"token": "wrong", "next": "/compare?runs=a,b"}
        ours = await calling(LOCKED, clock).post("/login", data=fields, headers=PAGE)
        theirs = await calling(LOCKED, clock).post("/login", data={**fields, "next": "//evil.example"}, headers=PAGE)

        assert 'name="next" value="/compare?runs=a,b"' in ours.text
        assert 'name="next" value="/"' in theirs.text


class TestGuessing:
    async def test_whoever_guesses_has_to_wait_and_nobody_else(self, clock: ManualClock) -> None:
        gate = AuthMiddleware(inside, LOCKED, clock, MemoryStore(clock).notes)
        guesser, other = at(gate, "203.0.113.7"), at(gate, "203.0.113.8")

        tried = [await guesser.post("/login", data={"token": f"guess-{n}"}) for n in range(WRONG_AT_MOST)]
        barred = await guesser.post("/login", data={"token": "guess"})

        assert {answer.status_code for answer in tried} == {401}
        assert (barred.status_code, barred.headers["Retry-After"]) == (429, "60")
        assert (await other.post("/login", data={"token": "guess"})).status_code == 401
        await clock.advance(WINDOW + timedelta(seconds=1))
        assert (await guesser.post("/login", data={"token": "guess"})).status_code == 401

    async def test_guesses_with_each_request_count_too(self, clock: ManualClock) -> None:
        guesser = calling(LOCKED, clock)
        for n in range(WRONG_AT_MOST):
            assert (await guesser.get("/", headers=bearer(f"guess-{n}"))).status_code == 401

        assert (await guesser.get("/", headers=bearer("guess"))).status_code == 429
        assert (await guesser.post("/login", data={"token": "guess"})).status_code == 429
        await clock.advance(WINDOW + timedelta(seconds=1))
        assert (await guesser.get("/", headers=bearer("guess"))).status_code == 401

    @pytest.mark.parametrize("token", [TOKEN, READ_TOKEN])
    async def test_the_right_token_gets_in_whoever_else_guesses_at_the_same_address(
        self, clock: ManualClock, token: str
    ) -> None:
        gate = AuthMiddleware(inside, LOCKED, clock, MemoryStore(clock).notes)
        guesser, other = at(gate, "203.0.113.7"), at(gate, "203.0.113.7")
        for n in range(3 * WRONG_AT_MOST):
            await guesser.get("/", headers=bearer(f"guess-{n}"))

        assert (await guesser.get("/", headers=bearer("guess"))).status_code == 429
        assert (await other.get("/", headers=bearer(token))).status_code == 200
        assert (await other.post("/login", data={"token": token})).status_code == 303
        assert (await guesser.get("/", headers=bearer("guess"))).status_code == 429

    async def test_whoever_is_logged_in_goes_on_while_others_at_the_address_guess(self, clock: ManualClock) -> None:
        gate = AuthMiddleware(inside, LOCKED, clock, MemoryStore(clock).notes)
        guesser, other = at(gate, "203.0.113.7"), at(gate, "203.0.113.7")
        await logged_in(other)
        for n in range(WRONG_AT_MOST):
            await guesser.get("/", headers=bearer(f"guess-{n}"))

        assert (await other.get("/")).status_code == 200

    async def test_whoever_gives_no_token_does_not_guess(self, clock: ManualClock) -> None:
        caller = calling(LOCKED, clock)
        for _ in range(3 * WRONG_AT_MOST):
            assert (await caller.get("/")).status_code == 401

        assert (await caller.post("/login", data={"token": TOKEN})).status_code == 303

    async def test_behind_a_proxy_the_proxys_callers_are_told_apart(self, clock: ManualClock) -> None:
        caller = calling(replace(LOCKED, names=("drums.example",)), clock, "127.0.0.1")
        for n in range(WRONG_AT_MOST):
            await caller.get("/", headers={**bearer(f"guess-{n}"), "X-Forwarded-For": "1.2.3.4, 198.51.100.1"})

        same = await caller.get("/", headers={**bearer("guess"), "X-Forwarded-For": "9.9.9.9, 198.51.100.1"})
        other = await caller.get("/", headers={**bearer("guess"), "X-Forwarded-For": "198.51.100.2"})

        assert (same.status_code, other.status_code) == (429, 401)

    async def test_nobody_else_says_where_they_come_from(self, clock: ManualClock) -> None:
        caller = calling(LOCKED, clock)
        for n in range(WRONG_AT_MOST):
            await caller.get("/", headers={**bearer(f"guess-{n}"), "X-Forwarded-For": f"198.51.100.{n}"})

        assert (await caller.get("/", headers=bearer("guess"))).status_code == 429

    async def test_the_log_gets_no_more_lines_than_that_from_one_address(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "drumbeat.web.auth")
        gate = AuthMiddleware(inside, LOCKED, clock, MemoryStore(clock).notes)
        for caller in (at(gate, "203.0.113.7"), at(gate, "203.0.113.8")):
            for n in range(3 * WRONG_AT_MOST):
                await caller.get(f"/{n}")

        assert [record.message for record in caplog.records] == 2 * [
            f"refused GET /{n} with status 401" for n in range(WRONG_AT_MOST)
        ]
        await clock.advance(WINDOW + timedelta(seconds=1))
        await at(gate, "203.0.113.7").get("/later")
        assert caplog.records[-1].message == "refused GET /later with status 401"

    def test_what_is_remembered_is_bounded(self, clock: ManualClock) -> None:
        attempts = LoginAttempts(clock)
        for n in range(MOST_ADDRESSES + 100):
            attempts.note(f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}")

        assert len(attempts._wrong) == MOST_ADDRESSES

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ("2001:db8::1", "2001:db8::2", True),
            ("2001:db8::1", "2001:db8:0:1::1", False),
            ("203.0.113.7", "203.0.113.8", False),
            ("nonsense", "other", True),
        ],
    )
    def test_addresses_of_one_site_are_one(self, one: str, other: str, same: bool) -> None:
        assert (network(one) == network(other)) is same


class TestAnswers:
    async def test_every_answer_tells_browsers_what_to_keep_from_others(self, locked: Web) -> None:
        async with locked.client(bearer(TOKEN)) as caller:
            answers = [await caller.get(INFO), await caller.get("/nowhere"), await caller.get(INFO, headers=bearer("wrong"))]

        for answer in answers:
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
            assert "http" not in answer.headers["Content-Security-Policy"]
            assert "Server" not in answer.headers
            assert "Access-Control-Allow-Origin" not in answer.headers
        assert answers[0].headers["Cache-Control"] == "no-store"

    async def test_a_body_that_is_too_large_is_not_read(self, operator: httpx.AsyncClient) -> None:
        async def endless() -> Any:
            for _ in range(LARGEST // 65_536 + 2):
                yield b" " * 65_536

        announced = await operator.post(POOLS, content=b" " * (LARGEST + 1), headers={"Content-Type": "application/json"})
        chunked = await operator.post(POOLS, content=endless(), headers={"Content-Type": "application/json"})
        hook = await operator.post("/hooks/x", content=b" " * (LARGEST_HOOK + 1))

        assert [announced.status_code, chunked.status_code] == [413, 413]
        assert announced.json()["title"] in ("Request Entity Too Large", "Content Too Large")
        assert hook.status_code in (401, 413)

    async def test_what_fails_says_nothing_of_how(self, locked: Web, monkeypatch: pytest.MonkeyPatch) -> None:
        async def broken() -> None:
            raise RuntimeError("the secret is 4711")

        monkeypatch.setattr(locked.plane.store, "now", broken)
        async with locked.client(bearer(TOKEN)) as caller:
            answer = await caller.get("/metrics")

        assert answer.status_code == 500
        assert "4711" not in answer.text
        assert answer.headers["Content-Type"] == "application/problem+json"


async def test_a_store_that_is_away_is_a_503(tmp_path: Path) -> None:
    async with web(tmp_path, store="memory:") as made, made.client() as caller:
        with made.plane.store.unavailable():  # type: ignore[attr-defined]
            answer = await caller.get(POOLS)

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
