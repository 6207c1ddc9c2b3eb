"""The whole API under schemathesis; many more cases are tried by benchmarks/api_fuzz.py."""

from pathlib import Path

import pytest

from thorough import some
from web.fuzzing import fuzz, serving


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_request_breaks_the_server_or_its_promises(tmp_path: Path) -> None:
    with serving(tmp_path) as address:
        single = fuzz(address, tmp_path, some(8), "examples,fuzzing")
        following = fuzz(address, tmp_path, some(24), "stateful", seed=2)

    assert single.code == 0, single.said[-6000:]
    assert following.code == 0, following.said[-6000:]
    assert single.cases + following.cases > 150, (single.cases, following.cases)
    assert "Traceback" not in (tmp_path / "log").read_text()
