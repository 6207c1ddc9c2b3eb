"""drumbeat pool push --after, pool workflow, and cancel and requeue of subtrees and workflows."""

import json
from typing import Any

import pytest

from cli.given import invoke
from drumbeat.core.errors import InvalidInput, NotFound


def pushed(url: str, name: str, *more: str, pool: str = "p") -> str:
    return invoke("pool", "push", pool, '"x"', "--id", name, *more, store=url).output.strip()


def shown(url: str, name: str, pool: str = "p") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("pool", "show", pool, name, "--json", store=url).output)
    return found


def workflow(url: str) -> None:
    """Push: a → b1, b2 → c, the last one in another pool."""
    pushed(url, "a", "--workflow", "w", "--type", "fetch")
    pushed(url, "b1", "--after", "a", "--workflow", "w", "--type", "parse")
    pushed(url, "b2", "--after", "a", "--workflow", "w", "--type", "parse", "--if-failed", "skip")
    pushed(url, "c", "--after", "b1", "--after", "b2", "--after-any", "--workflow", "w", "--type", "sum", pool="other")


def test_a_job_is_pushed_after_others(url: str) -> None:
    workflow(url)

    found = shown(url, "c", "other")

    assert (found["status"], found["waits_for"], found["after_any"], found["workflow_id"]) == ("waiting", 1, True, "w")
    assert shown(url, "b2")["if_failed"] == "skip"
    assert "it waits for 1 of 1 jobs: a (pending)" in invoke("pool", "explain", "p", "b1", store=url).output


def test_a_workflow_is_shown_as_a_tree(url: str) -> None:
    workflow(url)

    said = invoke("pool", "workflow", "w", store=url).output

    assert said.splitlines() == [
        "workflow w: 0 of 4 jobs have ended (0%): 3 waiting, 1 pending",
        "fetch in p a: pending",
        "└─ parse in p b1: waiting",
        "└─ parse in p b2: waiting",
        "   └─ sum in other c: waiting (also after parse in p b1)",
    ]
    told = json.loads(invoke("pool", "workflow", "w", "--json", store=url).output)
    assert (told["jobs"], told["share"], told["counts"]) == (4, 0.0, {"pending": 1, "waiting": 3})
    assert told["links"] == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert [box["level"] for box in told["boxes"]] == [0, 1, 1, 2]


def test_a_workflow_is_cancelled_in_all_its_pools(url: str) -> None:
    workflow(url)

    said = invoke("pool", "cancel", "p", "--workflow", "w", store=url).output

    assert sorted(said.split("\n")) == ["", "a: cancelled", "b1: cancelled", "b2: cancelled", "c: cancelled"]
    assert "4 of 4 jobs have ended (100%): 4 cancelled" in invoke("pool", "workflow", "w", store=url).output


def test_a_subtree_is_cancelled_and_requeued(url: str) -> None:
    workflow(url)

    cancelled = json.loads(invoke("pool", "cancel", "p", "b1", "--subtree", "--json", store=url).output)
    requeued = invoke("pool", "requeue", "p", "b1", "--subtree", store=url).output

    assert sorted(each["job_id"] for each in cancelled) == ["b1", "c"]
    assert (requeued, shown(url, "c", "other")["status"]) == ("requeued 2 jobs\n", "waiting")


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (("push", "p", "1", "--after", "nobody"), NotFound, "there is no job 'nobody' to wait for"),
        (
            ("push", "p", "1", "--after-any"),
            InvalidInput,
            "after_any says how to wait for other jobs: expected the option after too, got none",
        ),
        (("push", "p", "1", "--id", "x", "--after", "x"), InvalidInput, "circle, got x → x"),
        (("workflow", "nothing"), NotFound, "there is no workflow 'nothing'"),
        (("cancel", "p", "--workflow", "nothing"), NotFound, "there is no workflow 'nothing'"),
        (("cancel", "p", "a", "--workflow", "w"), InvalidInput, "--workflow without job ids and filters"),
        (("cancel", "p", "--subtree"), InvalidInput, "expected job ids with --subtree"),
        (("requeue", "p", "--all", "--subtree"), InvalidInput, "expected --all without"),
    ],
)
def test_a_mistake_is_one_clear_line(url: str, words: tuple[str, ...], error: type[Exception], says: str) -> None:
    pushed(url, "a", "--workflow", "w")

    with pytest.raises(error, match=says):
        invoke("pool", *words, store=url)
