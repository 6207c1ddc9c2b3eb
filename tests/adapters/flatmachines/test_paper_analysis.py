"""The example with a real workload: papers in a table, summaries in files."""

import sys
from pathlib import Path

import pytest

from adapters.flatmachines.example import EXAMPLES, Example
from drumbeat.adapters.flatmachines.runner import load_factory
from drumbeat.core.job import JobStatus

SCRIPTS = EXAMPLES / "paper_analysis" / "python"


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_papers_become_summaries_and_errors_are_kept(tmp_path: Path) -> None:
    example = Example("paper_analysis", tmp_path, "jobs.sqlite", "paper_analysis")
    missing = tmp_path / "missing.txt"
    assert len(await example.run("papers", "crawl")) == 3
    await example.run("papers", "crawl", str(missing))
    imported = await example.run("papers", "import")
    assert await example.run("papers", "import") == imported

    assert await example.run("papers", "check", "--max-workers", "2") == {"spawned": 2}
    await example.until_all_left()
    for _ in range(3):
        await example.run("papers", "work")

    papers = await example.run("papers", "list")
    assert [paper["error"] is None for paper in papers] == [True, True, True, False]
    assert "No such file" in papers[3]["error"]
    for paper in papers[:3]:
        title = Path(paper["text_path"]).read_text(encoding="utf-8").partition("\n")[0]
        text = Path(paper["summary_path"]).read_text(encoding="utf-8")
        assert text.startswith(f"# {title}\n")
        assert text.count("\n- ") == 3
    jobs = await example.jobs()
    assert list(jobs) == imported["jobs"]
    assert [job.status for job in jobs.values()] == [*[JobStatus.DONE] * 3, JobStatus.POISONED]
    assert jobs["paper-1"].result["summary_path"] == papers[0]["summary_path"]


def test_a_summary_is_the_sentences_that_say_what_a_text_is_about() -> None:
    summarize = load_factory("analysis", f"{SCRIPTS / 'analysis.py'}:summarize")
    text = "Title\n\nCats sleep. Cats hunt mice at night. It was late! Mice fear cats and hunt seeds."
    found = summarize(text, sentences=2, keywords=3)
    assert found == {
        "title": "Title",
        "keywords": ["cats", "hunt", "mice"],
        "summary": ["Cats hunt mice at night.", "Mice fear cats and hunt seeds."],
        "sentences": 4,
    }
    with pytest.raises(ValueError, match="a title and at least one sentence"):
        summarize("Title only")
    assert str(SCRIPTS) not in sys.path
