"""drumbeat pool: jobs in and out, looked at and decided about, and every mistake named."""

import io
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli.given import invoke, piped
from drumbeat.cli.stdin_lines import incoming_lines
from drumbeat.core.errors import AlreadyExists, InvalidInput, InvalidSettings, NotFound, Refused


def pushed(url: str, *payload: Any) -> list[str]:
    return [invoke("pool", "push", "p", json.dumps(each), store=url).output.strip() for each in payload]


def told(url: str, *arguments: str) -> Any:
    return json.loads(invoke("pool", *arguments, "--json", store=url).output)


def jobs(url: str, *more: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in invoke("pool", "list", "p", *more, "--json", store=url).output.splitlines()]


def test_a_push_makes_store_and_pool_and_tells_the_id(url: str) -> None:
    said = invoke("pool", "push", "p", '{"a": 1}', "--priority", "3", "--type", "t", "--json", store=url)

    job = told(url, "show", "p", json.loads(said.output)["job_id"])
    assert (job["payload"], job["priority"], job["type"], job["status"]) == ({"a": 1}, 3, "t", "pending")


def test_lines_become_jobs(url: str) -> None:
    said = piped('{"n": 1}\n\n2\n"three"\n', "pool", "push", "p", "-", "--batch", "2", store=url)

    assert said.output == "pushed 3 jobs to p\n"
    assert [job["payload"] for job in jobs(url)] == [{"n": 1}, 2, "three"]


def test_each_lines_job_is_told_as_json(url: str) -> None:
    said = piped("1\n2\n", "pool", "push", "p", "-", "--json", store=url)

    found = [json.loads(line) for line in said.output.splitlines()]
    assert [each["line"] for each in found] == [1, 2]
    assert [each["job_id"] for each in found] == [job["job_id"] for job in jobs(url)]


def test_a_bad_line_is_named_and_nothing_before_it_is_lost(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"line 4: expected JSON, got '{oops'.*; the 3 jobs before it were pushed"):
        piped("1\n2\n3\n{oops\n5\n", "pool", "push", "p", "-", "--batch", "2", store=url)

    assert [job["payload"] for job in jobs(url)] == [1, 2, 3]


def test_a_line_with_a_wrong_option_is_named(url: str) -> None:
    lines = '{"payload": 1}\n{"payload": 2, "prio": 9}\n'

    with pytest.raises(InvalidInput, match="line 2: unknown option 'prio'"):
        piped(lines, "pool", "push", "p", "-", "--jobs", store=url)


def test_a_line_with_an_empty_key_is_named(url: str) -> None:
    lines = '{"payload": 1}\n{"payload": 2, "unique_key": ""}\n'

    with pytest.raises(InvalidInput, match="line 2: expected unique_key to be text that is not empty"):
        piped(lines, "pool", "push", "p", "-", "--jobs", store=url)


def test_what_was_listed_can_be_imported(url: str, tmp_path: Path) -> None:
    piped('{"payload": 1, "priority": 2, "group": "g"}\n{"payload": 2}\n', "pool", "push", "p", "-", "--jobs", store=url)
    listed = invoke("pool", "list", "p", "--json", store=url).output
    file = tmp_path / "jobs.jsonl"
    file.write_text(listed)

    said = invoke("pool", "import", "q", str(file), "--jobs", store=url)

    copies = [json.loads(line) for line in invoke("pool", "list", "q", "--json", store=url).output.splitlines()]
    assert said.output == "pushed 2 jobs to q\n"
    assert [(job["payload"], job["priority"], job["group"]) for job in copies] == [(1, 2, "g"), (2, 0, None)]


def test_a_csv_becomes_one_object_a_row(url: str, tmp_path: Path) -> None:
    file = tmp_path / "papers.csv"
    file.write_text('title,pages\n"Queues, and more",3\nLeases,4\n')

    invoke("pool", "import", "p", str(file), store=url)

    assert [job["payload"] for job in jobs(url)] == [
        {"title": "Queues, and more", "pages": "3"},
        {"title": "Leases", "pages": "4"},
    ]


def test_jobs_are_listed_by_status_and_type(url: str) -> None:
    piped('{"payload": 1, "type": "a"}\n{"payload": 2, "type": "b"}\n', "pool", "push", "p", "-", "--jobs", store=url)
    first = jobs(url)[0]["job_id"]
    invoke("pool", "cancel", "p", first, store=url)

    assert [job["payload"] for job in jobs(url, "--status", "cancelled")] == [1]
    assert [job["payload"] for job in jobs(url, "--type", "b")] == [2]
    assert [job["payload"] for job in jobs(url, "--after", first)] == [2]


def test_pools_are_listed_with_their_counts(url: str) -> None:
    pushed(url, 1, 2)

    assert [(each["pool_id"], each["ready"]) for each in told(url, "list")] == [("p", 2)]
    assert invoke("pool", "list", store=url).output.split()[10:13] == ["p", "2", "0"]


def test_a_pool_is_deleted_with_its_jobs(url: str) -> None:
    pushed(url, {"n": 1}, {"n": 2})

    with pytest.raises(Refused, match=r"2 unfinished jobs; cancel them, or delete them too \(--unfinished\)"):
        invoke("pool", "delete", "p", store=url)
    assert len(jobs(url)) == 2

    said = invoke("pool", "delete", "p", "--unfinished", store=url)
    assert (said.code, said.output) == (0, "deleted pool p with its jobs: 0 done, 0 poisoned, 0 cancelled, 2 unfinished\n")
    with pytest.raises(NotFound):
        invoke("pool", "status", "p", store=url)


def test_status_shows_counts_and_pause(url: str) -> None:
    pushed(url, 1, 2)
    invoke("pool", "pause", "p", "--for", "30m", store=url)

    found = told(url, "status", "p")
    said = invoke("pool", "status", "p", store=url).output

    assert (found["jobs"]["ready"], found["jobs"]["pending"], found["paused"], found["workers"]) == (2, 2, True, [])
    assert "paused until" in said
    assert "2 ready" in said
    assert told(url, "resume", "p") == {"pool_id": "p", "paused_until": None, "paused_types": []}
    assert "is paused until it is resumed" in invoke("pool", "pause", "p", store=url).output


def test_a_pause_of_a_type_that_nothing_has_is_noted(url: str) -> None:
    invoke("pool", "create", "p", "--handler", "resize=m:f", store=url)
    invoke("pool", "push", "p", "1", "--type", "mail", store=url)

    said = invoke("pool", "pause", "p", "--type", "resise", store=url)
    known = [invoke("pool", "pause", "p", "--type", each, store=url).errors for each in ("resize", "mail")]

    assert "note: pool p has no handler and no ready job of type 'resise'; its types are: 'mail', 'resize'" in said.errors
    assert known == ["", ""]


def test_status_and_explain_name_jobs_without_a_handler(url: str) -> None:
    invoke("pool", "create", "p", "--handler", "resize=m:f", store=url)
    ids = [invoke("pool", "push", "p", "1", "--type", "x", store=url).output.strip() for _ in range(2)]
    invoke("pool", "push", "p", "1", "--type", "resize", store=url)

    add = "drumbeat pool create p --update --handler x=module:function"
    assert f"2 jobs of type 'x' wait: no handler; add one with: {add}" in invoke("pool", "status", "p", store=url).output
    assert told(url, "status", "p")["unhandled"] == {"x": 2}
    assert told(url, "explain", "p", ids[0])["reasons"][0]["says"] == (
        f"the pool has no handler for type 'x'; it has: resize; add one with: {add}"
    )


def test_jobs_are_cancelled_and_requeued_by_filter_after_a_dry_run(url: str) -> None:
    piped('{"payload": 1, "type": "a"}\n{"payload": 2, "type": "b"}\n', "pool", "push", "p", "-", "--jobs", store=url)

    dry = invoke("pool", "cancel", "p", "--type", "a", "--newer-than", "1h", "--dry-run", store=url)
    assert dry.output.splitlines()[0] == "dry run: 1 jobs would be cancelled"
    assert [job["status"] for job in jobs(url)] == ["pending", "pending"]

    assert invoke("pool", "cancel", "p", "--type", "a", store=url).output == "cancelled 1 of 1 matching jobs\n"
    assert [job["status"] for job in jobs(url)] == ["cancelled", "pending"]
    assert invoke("pool", "cancel", "p", "--older-than", "1h", store=url).output == "cancelled 0 of 0 matching jobs\n"

    again = told(url, "requeue", "p", "--status", "cancelled", "--limit", "5")
    assert (again["matched"], again["changed"], again["examples"]) == (1, 1, [jobs(url)[0]["job_id"]])


def test_all_poisoned_jobs_are_counted_before_they_are_requeued(url: str) -> None:
    invoke("pool", "push", "p", "1", store=url)

    assert invoke("pool", "requeue", "p", "--all", "--dry-run", store=url).output.startswith("dry run: 0 jobs would")
    assert invoke("pool", "requeue", "p", "--all", store=url).output == "requeued 0 jobs\n"


def test_pending_jobs_are_rescheduled_and_prioritised_by_filter(url: str) -> None:
    piped('{"payload": 1, "type": "a"}\n{"payload": 2, "type": "b"}\n', "pool", "push", "p", "-", "--jobs", store=url)

    said = invoke("pool", "reschedule", "p", "--in", "1h", "--type", "a", store=url).output
    assert said == "rescheduled 1 of 1 matching jobs\n"
    assert invoke("pool", "prioritise", "p", "--to", "7", "--all", store=url).output == "prioritised 2 of 2 matching jobs\n"
    assert [job["priority"] for job in jobs(url)] == [7, 7]
    assert (told(url, "status", "p")["jobs"]["delayed"], told(url, "status", "p")["jobs"]["ready"]) == (1, 1)

    again = invoke("pool", "reschedule", "p", "--all", "--at", "2026-01-01T00:00:00Z", "--dry-run", store=url).output
    assert again.startswith("dry run: 2 jobs would be rescheduled")
    invoke("pool", "reschedule", "p", "--all", "--at", "2026-01-01T00:00:00Z", store=url)
    assert told(url, "status", "p")["jobs"]["ready"] == 2


def test_a_limit_is_not_told_as_the_number_of_jobs_that_match(url: str) -> None:
    pushed(url, 1, 2, 3)

    limited, rest = (
        invoke("pool", "prioritise", "p", "--to", "7", "--all", *more, store=url).output for more in (("--limit", "2"), ())
    )

    assert limited == "prioritised 2 of the first 2 matching jobs (the limit; more may match)\n"
    assert rest == "prioritised 3 of 3 matching jobs\n"


@pytest.mark.parametrize(
    "command", ["show p nope", "cancel p nope", "explain p nope", "send p nope x", "requeue p nope --subtree"]
)
def test_a_job_that_is_not_there_names_its_pool(url: str, command: str) -> None:
    pushed(url, 1)

    with pytest.raises(NotFound, match=r"there is no job 'nope'; see: drumbeat pool list p$"):
        invoke("pool", *command.split(), store=url)


def test_a_pause_is_told_in_one_line(url: str) -> None:
    pushed(url, 1)
    steps = [
        (("pause", "--type", "a"), "in pool p, jobs of type 'a' are paused; all other jobs are claimed"),
        (("pause", "--type", "b"), "in pool p, jobs of types 'a', 'b' are paused; all other jobs are claimed"),
        (("pause",), "pool p is paused until it is resumed; jobs of types 'a', 'b' stay paused after that"),
        (("resume",), "in pool p, jobs of types 'a', 'b' are paused; all other jobs are claimed"),
        (("resume", "--type", "a"), "in pool p, jobs of type 'b' are paused; all other jobs are claimed"),
        (("resume", "--type", "b"), "pool p is not paused"),
        (("pause",), "pool p is paused until it is resumed"),
    ]

    assert [invoke("pool", do, "p", *more, store=url).output for (do, *more), _ in steps] == [f"{line}\n" for _, line in steps]


def test_errors_are_listed_in_groups_and_a_group_is_requeued(url: str, tmp_path: Path) -> None:
    piped(
        '{"payload": 1, "max_attempts": 1}\n{"payload": 2, "max_attempts": 1}\n', "pool", "push", "p", "-", "--jobs", store=url
    )
    invoke("pool", "work", "p", "--drain", "--handler", "command:sh -c 'echo no page $$ >&2; exit 1'", store=url)

    found = told(url, "errors", "p")
    assert len(found["groups"]) == 1, found
    [group] = found["groups"]
    assert group["jobs"] == 2
    table = invoke("pool", "errors", "p", store=url).output
    assert group["group_id"] in table
    assert group["example"] in table

    assert invoke("pool", "requeue", "p", "--error-group", "none", store=url).output == "requeued 0 of 0 matching jobs\n"
    said = invoke("pool", "requeue", "p", "--error-group", group["group_id"], store=url).output
    assert said == "requeued 2 of 2 matching jobs\n"
    assert invoke("pool", "errors", "p", store=url).output == "pool p has no matching poisoned jobs\n"


def test_a_job_is_shown_explained_cancelled_and_requeued(url: str) -> None:
    (job_id,) = pushed(url, {"a": 1})

    shown = invoke("pool", "show", "p", job_id, store=url).output
    why = told(url, "explain", "p", job_id)
    explained = invoke("pool", "explain", "p", job_id, store=url).output
    cancelled = told(url, "cancel", "p", job_id)
    requeued = told(url, "requeue", "p", job_id)

    assert 'payload: {"a": 1}' in shown
    assert why["why"] == "no_workers"
    assert f"{job_id} is pending: pool p has no live worker" in explained
    assert (cancelled[0]["status"], requeued) == ("cancelled", [job_id])


def test_an_event_is_sent_shown_and_refused_the_second_time(url: str) -> None:
    (job_id,) = pushed(url, 1)

    sent = invoke("pool", "send", "p", job_id, "approval", '{"by": "Ada"}', store=url).output
    with pytest.raises(AlreadyExists, match=f"event 'approval' was sent to job {job_id} before; the first one counts"):
        invoke("pool", "send", "p", job_id, "approval", store=url)
    with pytest.raises(InvalidInput, match="expected the value as JSON, got 'yes'"):
        invoke("pool", "send", "p", job_id, "other", "yes", store=url)
    shown = told(url, "show", "p", job_id)
    explained = invoke("pool", "explain", "p", job_id, store=url).output

    assert sent == f"sent event 'approval' to job {job_id}\n"
    assert [(step["name"], step["kind"], step["result"]) for step in shown["steps"]] == [("approval", "sent", {"by": "Ada"})]
    assert "event 'approval' was sent at" in explained
    assert "approval" in invoke("pool", "show", "p", job_id, store=url).output


def test_ended_jobs_are_pruned_by_age(url: str) -> None:
    (job_id,) = pushed(url, 1)
    invoke("pool", "cancel", "p", job_id, store=url)

    assert told(url, "prune", "--older-than", "1d") == {"pruned": 0}
    assert told(url, "prune", "--older-than", "0s") == {"pruned": 1}
    assert jobs(url) == []


def test_how_workers_work_is_kept_with_the_pool(url: str) -> None:
    handlers = ("--handler", "a=m:f", "--handler", "command:cat", "--executor", "threads", "--concurrency", "4")
    made = told(url, "create", "p", *handlers, "--mode", "once", "--max-workers", "3", "--heartbeat", "10s", "--lease", "40s")

    assert made["policy"] == {
        "handlers": {"a": "m:f", "": "command:cat"},
        "mode": "once",
        "executor": "threads",
        "concurrency": 4,
        "lease": 40.0,
        "max_workers": 3,
    }
    assert (made["thresholds"]["heartbeat_every"], made["thresholds"]["lost_after"]) == ("PT10S", "PT40S")


def test_a_pool_is_changed_only_when_asked_to(url: str) -> None:
    invoke("pool", "create", "p", "--concurrency", "4", store=url)

    with pytest.raises(AlreadyExists):
        invoke("pool", "create", "p", "--concurrency", "5", store=url)
    policy = told(url, "create", "p", "--handler", "m:f", "--update")["policy"]
    assert policy.pop("mended_at")
    assert policy == {"concurrency": 4, "handlers": {"": "m:f"}}


def test_durations_are_shown_as_people_say_them(url: str) -> None:
    options = ("--delay", "45d", "--timeout", "200ms", "--backoff", "1.5s", "--group", "g", "--group-rate", "10/1m")
    job_id = invoke("pool", "push", "p", "1", *options, store=url).output.strip()

    shown = invoke("pool", "show", "p", job_id, store=url).output
    assert "backoff: first 1.5 s, factor 2.0, most 10 min, jitter 0.1\n" in shown
    assert "timeout: 200 ms\n" in shown
    assert "group_rate: count 10, per 60.0 s\n" in shown
    assert "45 days from now" in invoke("pool", "explain", "p", job_id, store=url).output


def test_an_update_changes_what_is_given_though_it_is_the_usual_value(url: str) -> None:
    usual = ("--mode", "drain", "--concurrency", "1", "--executor", "async", "--max-workers", "10", "--heartbeat", "30s")
    invoke("pool", "create", "p", "--mode", "loop", "--concurrency", "4", "--executor", "threads", "--lease", "5m",
           "--max-workers", "3", "--heartbeat", "5s", store=url)  # fmt: skip

    kept, made = told(url, "create", "p", "--update"), told(url, "create", "p", "--update", *usual)

    assert (kept["policy"]["concurrency"], kept["thresholds"]["heartbeat_every"]) == (4, "PT5S")
    assert made["policy"] == {
        "mode": "drain", "concurrency": 1, "executor": "async", "lease": 300.0, "max_workers": 10,
    }  # fmt: skip
    found = made["thresholds"]
    assert [found[name] for name in ("heartbeat_every", "stale_after", "lost_after")] == ["PT30S", "PT60S", "PT120S"]


def test_single_handlers_are_added_replaced_and_removed(url: str) -> None:
    invoke("pool", "create", "p", "--handler", "a=m:f", "--handler", "b=m:f", "--handler", "m:any", store=url)

    changed = told(url, "create", "p", "--update", "--handler", "a=m:g", "--handler", "c=m:h", "--remove-handler", "b")
    specific = told(url, "create", "p", "--update", "--remove-handler", "")

    assert changed["policy"]["handlers"] == {"a": "m:g", "c": "m:h", "": "m:any"}
    assert specific["policy"]["handlers"] == {"a": "m:g", "c": "m:h"}
    with pytest.raises(InvalidInput, match="type 'b' has no handler to remove; types with a handler: 'a', 'c'"):
        invoke("pool", "create", "p", "--update", "--remove-handler", "b", store=url)
    with pytest.raises(InvalidInput, match="expected --remove-handler together with --update"):
        invoke("pool", "create", "q", "--remove-handler", "b", store=url)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("push", "p", "{oops"), "expected JSON, got '{oops'[^;]*$"),
        (("push", "p", "a text"), r"""expected JSON, got 'a text': .*; put quotes around text: '"a text"'$"""),
        (("push", "p", "1", "--delay", "soon"), "expected a duration such as"),
        (("push", "p", "1", "--max-attempts", "0"), "expected max_attempts to be a whole number, 1 or more, got 0"),
        (("push", "p", "1", "--at", "noon"), "expected --at as an ISO time, such as .*, got 'noon'"),
        (
            ("push", "p", "1", "--at", "2026-12-24T18:00:00"),
            "expected --at with a time zone, such as .*; for UTC, write 2026-12-24T18:00:00Z",
        ),
        (("push", "p", "1", "--at", "9999-12-31T23:59:59-12:00"), "expected run_at to be a datetime"),
        (("push", "p", ""), "expected JSON, got ''"),
        (("push", "p", "[" * 5000 + "]" * 5000), "expected JSON nested at most 100 deep, got more; flatten it"),
        (
            ("push", "p", "1", "--group-limit", "1"),
            "group_limit limits the jobs of a group: expected the option group too, got none",
        ),
        (("push", "p", "1", "--group-rate", "10/1m"), "group_rate limits the jobs of a group: expected the option group too"),
        (
            ("push", "p", "1", "--group", "g", "--group-rate", "²/1m"),
            "expected --group-rate as a number and a time, such as 10/1m",
        ),
        (
            ("push", "p", "1", "--group", "g", "--group-rate", "fast"),
            "expected --group-rate as a number and a time, such as 10/1m",
        ),
        (("push", "p", "1", "--key", "a\ud800"), "expected unique_key to be text"),
        (("push", "p", "1", "--key", ""), "expected unique_key to be text that is not empty"),
        (("push", "p", "1", "--id", ""), "expected job_id to be text that is not empty"),
        (("push", "p", "1", "--group", ""), "expected group to be text that is not empty"),
        (("push", "p", "1", "--workflow", ""), "expected workflow_id to be text that is not empty"),
        (("push", "p", "-", "--id", "x"), "expected --id with a single payload"),
        (("import", "p", "no-such-file"), "cannot read jobs from no-such-file"),
        (("requeue", "p"), "expected job ids, --all or a filter such as --status or --type, got neither"),
        (("requeue", "p", "x", "--all"), "expected only one of job ids, --all and filters"),
        (("requeue", "p", "--all", "--subtree"), "expected --all without --subtree"),
        (("reschedule", "p"), "expected --at or --in, got neither"),
        (("reschedule", "p", "--at", "noon"), "expected --at as an ISO time"),
        (("reschedule", "p", "--all", "--at", "2026-12-24"), "--at with a time zone, .*for UTC, write 2026-12-24T00:00:00Z"),
        (("reschedule", "p", "--all", "--at", "9999-12-31T23:59:59-12:00"), "run_at: expected .* before the year 9000"),
        (("reschedule", "p", "--in", "1h"), "expected --all or a filter such as --type, got neither"),
        (("prioritise", "p", "--to", "7"), "expected --all or a filter such as --type, got neither"),
        (("prioritise", "p", "--to", "7", "--type", "a", "--all"), "expected --all or a filter such as --type, got both"),
        (("cancel", "p"), "expected job ids or a filter such as --status or --type, got neither"),
        (("cancel", "p", "x", "--type", "a"), "expected job ids or filters, got both"),
        (("cancel", "p", "--status", "done"), "statuses: expected only waiting, pending, claimed, got done"),
        (("cancel", "p", "--older-than", "soon"), "expected a duration such as 200ms"),
        (("prune", "--status", "pending"), "expected --status done, poisoned or cancelled"),
        (("work", "p", "--once", "--drain"), "expected --once or --drain, got both"),
        (("work", "p", "--handler", "nowhere"), "expected module:function"),
        (("create", "q", "--handler", "a=m:f", "--handler", "a=m:g"), "expected one handler for type 'a'"),
    ],
)
def test_what_cannot_be_used_is_named(url: str, arguments: tuple[str, ...], says: str) -> None:
    pushed(url, 1)

    with pytest.raises(InvalidInput, match=says):
        invoke("pool", *arguments, store=url)


@pytest.mark.parametrize(
    "arguments",
    [("status", "q"), ("list", "q"), ("work", "q", "--once"), ("pause", "q"), ("explain", "q", "x"), ("show", "p", "x")],
)
def test_what_is_not_there_is_named(url: str, arguments: tuple[str, ...]) -> None:
    pushed(url, 1)

    with pytest.raises(NotFound, match=r"no pool 'q'|x"):
        invoke("pool", *arguments, store=url)


def test_a_payload_over_the_limit_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="line 2: expected payload to be at most 1048576 bytes"):
        piped(f'1\n"{"x" * 1_100_000}"\n', "pool", "push", "p", "-", store=url)

    assert len(jobs(url)) == 1


def test_a_stream_is_text(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n"))

    assert piped('"\u00fc"\n', "pool", "push", "p", "-", store=url).code == 0
    assert [job["payload"] for job in jobs(url)] == ["ü"]


def test_what_a_slow_pipe_has_sent_is_pushed_before_more_comes(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    there: list[int] = []

    def lines() -> Iterator[str | None]:
        yield "1"
        yield None
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            there.extend(database.execute("SELECT count(*) FROM jobs").fetchone())
        yield "2"

    monkeypatch.setattr("drumbeat.cli.pool_push.standard_input", lines)

    assert invoke("pool", "push", "p", "-", store=url).output == "pushed 2 jobs to p\n"
    assert there == [1]


def test_a_pause_in_a_pipe_is_told_and_no_line_is_cut_by_it() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source, os.fdopen(writer, "wb", buffering=0) as end:
        lines = incoming_lines(source)
        end.write(b"a\nb")
        before = [next(lines), next(lines)]
        end.write(b"c\n\nd")
        end.close()
        after = [line for line in lines if line is not None]

    assert before == [b"a", None]
    assert after == [b"bc", b"", b"d"]


def test_how_a_job_is_tried_again_is_said_with_it(url: str) -> None:
    invoke("pool", "push", "p", "1", "--backoff", "10s", "--max-backoff", "1h", "--max-crashes", "5", store=url)
    invoke("pool", "push", "p", "2", "--group", "g", "--group-rate", "10/1m", store=url)

    retried, limited = jobs(url)
    assert (retried["backoff"]["first"], retried["backoff"]["most"], retried["max_crashes"]) == ("PT10S", "PT3600S", 5)
    assert limited["group_rate"] == {"count": 10, "per": "PT60S"}


@pytest.mark.parametrize(
    "option",
    [
        {"backoff": {"factor": float("inf")}},
        {"backoff": {"factor": float("nan")}},
        {"backoff": {"factor": 0.5}},
        {"backoff": {"jitter": 50}},
        {"backoff": {"first": 1e12, "most": 1e12}},
        {"delay": 1e12},
    ],
)
def test_an_option_nobody_could_live_by_is_refused_by_its_name(url: str, option: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=f"line 1: expected {next(iter(option))} to be"):
        piped(json.dumps({"payload": 1, **option}), "pool", "push", "p", "-", "--jobs", store=url)


def test_a_moment_to_come_comes_with_a_list(url: str) -> None:
    invoke("pool", "push", "p", "1", "--at", "2090-01-01T00:00:00Z", store=url)

    piped(invoke("pool", "list", "p", "--json", store=url).output, "pool", "push", "q", "-", "--jobs", store=url)

    assert told(url, "list", "q")["not_before"].startswith("2090-01-01")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b"1\nyes\n", 'line 2: expected JSON, got .*; put quotes around text: "a text"; the 1 jobs before it were'),
        ("a.jsonl", b'1\n"\xff"\n', "line 2: expected JSON, got .*; the 1 jobs before it were pushed"),
        ("a.jsonl", b'1\n"\\ud800"\n', "line 2: expected JSON, got .*; the 1 jobs before it were pushed"),
        ("a.csv", b"a,b\n1,2\n3\n", "line 3: expected 2 fields, as in the header, got 1"),
        ("a.csv", b'a\n"' + b"x" * 9_000_000 + b'"\n', "expected a row of CSV, got: a field of more"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_its_line(
    url: str, tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(InvalidInput, match=says):
        invoke("pool", "import", "p", str(tmp_path / name), store=url)


@pytest.mark.parametrize(("name", "content"), [("a.csv", b"\xef\xbb\xbfa\n1\n"), ("a.jsonl", b'\xef\xbb\xbf{"a": "1"}\n')])
def test_a_mark_of_byte_order_is_no_part_of_a_job(url: str, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)

    invoke("pool", "import", "p", str(tmp_path / name), store=url)

    assert told(url, "list", "p")["payload"] == {"a": "1"}


@pytest.mark.parametrize(
    "command",
    [
        "requeue p one",
        "requeue p --all",
        "requeue p --all --limit 1",
        "requeue p --type t",
        "requeue p one --subtree",
        "reschedule p --all --in 0s",
        "resume p",
        "create p --update --handler json:dumps",
        "create p --update --max-workers 3",
        "create p --update --engine local",
    ],
)
def test_jobs_that_can_run_again_fire_the_triggers_of_a_push(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    fired: list[list[str]] = []
    monkeypatch.setattr("drumbeat.triggers.detached.start_detached", lambda command, *_: fired.append(command))
    monkeypatch.chdir(tmp_path)
    invoke("pool", "push", "p", "1", "--id", "one", "--type", "t", "--max-attempts", "1", "--delay", "1h", store=url)
    if command.startswith("requeue"):
        invoke("pool", "cancel", "p", "one", store=url)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
            database.execute("UPDATE jobs SET status = 'poisoned'")
            database.commit()
    (tmp_path / "triggers.yml").write_text("triggers:\n  - {name: push, type: subprocess}\n")

    invoke("pool", *command.split(), store=url)

    assert [json.loads(each[-1])["pool_id"] for each in fired] == ["p"]


def test_a_requeued_subtree_fires_the_triggers_of_all_its_pools(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired: list[list[str]] = []
    monkeypatch.setattr("drumbeat.triggers.detached.start_detached", lambda command, *_: fired.append(command))
    monkeypatch.chdir(tmp_path)
    invoke("pool", "push", "p", "1", "--id", "one", store=url)
    invoke("pool", "push", "q", "1", "--after", "one", store=url)
    invoke("pool", "cancel", "p", "one", "--subtree", store=url)
    (tmp_path / "triggers.yml").write_text("triggers:\n  - {name: push, type: subprocess}\n")

    invoke("pool", "requeue", "p", "one", "--subtree", store=url)

    assert [json.loads(each[-1])["pool_id"] for each in fired] == ["p", "q"]


def test_nothing_is_pushed_where_triggers_cannot_be_read(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pushed(url, 1)
    (tmp_path / "triggers.yml").write_text("triggres: []\n")

    with pytest.raises(InvalidSettings, match="triggres"):
        invoke("pool", "push", "p", "2", store=url)

    assert [job["payload"] for job in jobs(url)] == [1]


def test_no_event_is_sent_where_triggers_cannot_be_read(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("pool", "push", "p", "1", "--id", "one", store=url)
    (tmp_path / "triggers.yml").write_text("triggres: []\n")

    with pytest.raises(InvalidSettings, match="triggres"):
        invoke("pool", "send", "p", "one", "paid", store=url)
    (tmp_path / "triggers.yml").unlink()

    assert invoke("pool", "send", "p", "one", "paid", store=url).output == "sent event 'paid' to job one\n"


def test_a_pool_that_cannot_be_reaped_is_told_with_the_others(url: str) -> None:
    for name in ("a", "b"):
        invoke("pool", "create", name, store=url)
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database:
        database.execute("UPDATE pools SET policy = '{\"provider\":\"nowhere\"}' WHERE pool_id = 'a'")
        database.commit()

    said = invoke("pool", "reap", store=url)

    assert said.code == 1
    assert "a: no summary\n  failed: " in said.output
    assert "\nb: " in said.output
