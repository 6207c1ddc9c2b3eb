"""Pictures for docs/dashboard.md, taken from the real dashboard on demo data: ``make screenshots``."""

import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from PIL import Image
from playwright.async_api import Browser, Error, Page

from docs.pages import ROOT
from drumbeat.composition import offline
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.run import RunId
from drumbeat.settings import Settings
from web.pages.browsing import DESK, PHONE, browsing, chromium, opened
from web.pages.scene import build, triggers_yml
from web.pages.served import KEY, filled, serving

PICTURES = ROOT / "docs" / "pictures"
_COLOURS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One picture: of which page, and what is pressed before it is taken."""

    name: str
    path: str
    heading: str
    press: tuple[str, ...] = ()
    phone: bool = False
    whole: bool = True
    awaits: str = ""  #: words that have to be there
    linger: float = 1.5  #: seconds for charts to be drawn


def shots(runs: list[RunId], live: RunId) -> list[Shot]:
    first, second = runs
    return [
        Shot(name="run-live", path=f"/runs/{live}", heading="live", linger=14),
        Shot(name="overview", path="/", heading="Overview"),
        Shot(name="overview-phone", path="/", heading="Overview", phone=True),
        Shot(name="runs", path="/runs", heading="Runs"),
        Shot(name="run-result", path=f"/runs/{first}", heading="demo"),
        Shot(name="compare", path=f"/compare?runs={first},{second}", heading="Compare", awaits="→"),
        Shot(name="templates", path="/templates", heading="Templates"),
        Shot(
            name="template", path="/templates/accounts%2C%20read-heavy", heading="accounts, read-heavy", press=("Preview SQL",)
        ),
        Shot(name="pools", path="/pools", heading="Pools"),
        Shot(name="pool", path="/pools/mail", heading="mail", whole=False),
        Shot(name="fleets", path="/fleet", heading="Fleet"),
        Shot(name="fleet", path="/fleet/render", heading="render"),
        Shot(name="policy", path="/fleet/render/policy", heading="Policy of render"),
        Shot(name="simulate", path="/simulate", heading="Simulate a policy", press=("Simulate",), awaits="ideal fleet"),
        Shot(name="triggers", path="/triggers", heading="Triggers"),
        Shot(name="settings", path="/settings", heading="Settings"),
    ]


async def demo(plane: ControlPlane) -> None:
    """What the tests look at, and two connections."""
    await build(plane)
    desk = plane.connections()
    await desk.add("accounts", f"sqlite:///{plane.settings.state_dir.parent}/under-test.db", description="the accounts' table")
    await plane.store.connections.set_default("accounts")


def document(target: str, name: str, seconds: int) -> str:
    load = {
        "load_mode": "CONCURRENCY",
        "concurrent_connections": 8,
        "timing": {"warmup_seconds": 2, "duration_seconds": seconds},
    }
    work = {"standard": "read-only", "scale": 0.1, "think_time_ms": 5}
    slo = {"overall": {"p95_ms": 50, "max_error_pct": 1}}
    scaling = {"mode": "FIXED", "min_workers": 2, "min_connections": 4}
    return json.dumps({"name": name, "target": {"url": target}, "workload": work, **load, "slo": slo, "scaling": scaling})


async def finished_runs(settings: Settings, target: str) -> list[RunId]:
    """Two real runs, one after the other."""
    await offline.prepare(target, "read-only", 0.1, fresh=False, on_progress=lambda name, done, whole: None)
    made = []
    async with open_control_plane(settings) as plane:
        desk = plane.bench()
        for _ in range(2):
            run, _ = await desk.create(await desk.document(document(target, "demo", 12), is_text=True))
            await desk.start(run.run_id)
            await desk.conduct(run.run_id, asyncio.Event())
            made.append(run.run_id)
    return made


async def started_run(settings: Settings, target: str) -> RunId:
    async with open_control_plane(settings) as plane:
        desk = plane.bench()
        run, _ = await desk.create(await desk.document(document(target, "live", 60), is_text=True))
        await desk.start(run.run_id)
        return run.run_id


async def take(browser: Browser, address: str, shot: Shot) -> None:
    async with browsing(browser, address, PHONE if shot.phone else DESK) as (page, _):
        await opened(page, shot.path, shot.heading)
        for name in shot.press:
            await page.get_by_role("button", name=name).click()
        if shot.awaits:
            await page.get_by_text(shot.awaits).first.wait_for(timeout=60_000)
        await page.wait_for_timeout(shot.linger * 1000)
        await save(page, PICTURES / f"{shot.name}.png", whole=shot.whole)


async def save(page: Page, file: Path, *, whole: bool) -> None:
    """A picture of few colours: a fifth of the size, and nobody sees it."""
    await page.evaluate("() => window.scrollTo(0, 0)")
    await page.screenshot(path=file, full_page=whole, animations="disabled")
    with Image.open(file) as picture:
        picture.convert("RGB").quantize(_COLOURS).save(file, optimize=True)


async def take_all(address: str, wanted: list[Shot]) -> list[str]:
    """Take every picture; answers with those that could not be taken."""
    failed = []
    async with chromium() as browser:
        for shot in wanted:
            try:
                await take(browser, address, shot)
                print(f"{PICTURES / shot.name}.png", flush=True)
            except (AssertionError, Error) as exc:
                print(f"{shot.name}: {exc}", file=sys.stderr, flush=True)
                failed.append(shot.name)
    return failed


async def main() -> int:
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="drumbeat-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        triggers_yml(folder)
        store = await filled(folder, demo)
        settings, target = Settings(store=store, state_dir=folder / "state"), f"sqlite:///{folder}/bench.db"
        runs = await finished_runs(settings, target)
        live = await started_run(settings, target)
        with serving(folder, store, DRUMBEAT_KEY=KEY) as server:
            return len(await take_all(server.address, shots(runs, live)))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
