"""Templates in a browser: made, checked, looked ahead, copied, found and deleted."""

import pytest
from playwright.async_api import Page, expect

from drumbeat.store import open_store
from drumbeat.web.pages.plain_words import LOAD_MODES, SCALING_MODES
from web.pages.browsing import check_accessible, followed, opened, picture
from web.pages.scene import under_test
from web.pages.served import Served

LEAST, MOST, EACH = "Min connections per worker", "Max connections per worker", "Connections per worker"
BOUNDS = {"Min workers", "Max workers", LEAST, MOST, "Workers", EACH}
GUARDRAILS = {"Max host CPU (%)", "Max host memory (%)"}
SCALING: tuple[tuple[str, set[str], set[str]], ...] = (
    ("AUTO", set(), GUARDRAILS),
    ("BOUNDED", {"Min workers", "Max workers", LEAST, MOST}, GUARDRAILS),
    ("FIXED", {"Workers", EACH}, set()),
)
LOADS = {
    "CONCURRENCY": {"Total connections", "Duration (s)"},
    "QPS": {"Target operations/s", "Initial connections", "Duration (s)", MOST},
    "FIND_MAX_CONCURRENCY": {
        "Initial connections",
        "Connections added per step",
        "Step duration (s)",
        MOST,
    },
}


async def choose(page: Page, label: str, value: str) -> None:
    await page.get_by_role("combobox", name=label, exact=True).click()
    await page.get_by_role("option", name=value, exact=True).click()


async def shown(page: Page, labels: set[str]) -> set[str]:
    """Those of the labels whose field is there to be typed into."""
    return {label for label in labels if await page.get_by_label(label, exact=True).locator("visible=true").count()}


async def test_a_template_is_made_in_the_form_after_a_look_at_its_sql_and_plan(page: Page, served: Served) -> None:
    url = under_test(served.folder)
    await opened(page, "/templates/new", "New template")
    await page.get_by_label("Name", exact=True).fill("made in a browser")
    await page.get_by_label("Tags (comma-separated)").fill("browser, test")
    await page.get_by_label("URL (without password)").fill(url)
    await page.get_by_role("button", name="Find tables").click()
    await expect(page.get_by_text("Found 1 table: accounts")).to_be_visible()
    await choose(page, "Table", "accounts")
    await page.get_by_label("Total connections").fill("6")
    await page.get_by_label("Duration (s)", exact=True).fill("30")

    await page.get_by_role("button", name="Preview SQL").click()
    preview = page.get_by_role("region", name="Preview")
    await expect(preview).to_contain_text("POINT_LOOKUP, 40 %")
    await expect(preview).to_contain_text("SELECT")
    await expect(preview.get_by_role("row").filter(has_text="POINT_LOOKUP").first).to_contain_text("1 to 500, uniform")
    await picture(page, "template-sql")
    await page.get_by_role("button", name="Preview run plan").click()
    await expect(preview).to_contain_text("6 connections")
    await check_accessible(page)
    await picture(page, "template-plan")
    await page.get_by_role("button", name="Save").click()

    await expect(page.get_by_role("heading", name="made in a browser", level=1)).to_be_visible()
    async with open_store(served.store) as store:
        kept = await store.templates.get("made in a browser")
    assert kept.tags == ("browser", "test")
    assert kept.config["concurrent_connections"] == 6
    assert kept.config["target"]["table"] == "accounts"
    assert kept.config["scaling"] == {"mode": "AUTO"}


async def test_the_scaling_mode_shows_exactly_the_fields_the_seed_says(page: Page) -> None:
    await opened(page, "/templates/new", "New template")

    for mode, bounds, guardrails in SCALING:
        await choose(page, "Scaling mode", SCALING_MODES[mode])
        await expect(page.get_by_label("Max host CPU (%)")).to_be_visible(visible=bool(guardrails))
        await expect(page.get_by_label("Min workers")).to_be_visible(visible=mode == "BOUNDED")
        assert await shown(page, BOUNDS) == bounds, mode
        assert await shown(page, GUARDRAILS) == guardrails, mode
    await choose(page, "Scaling mode", SCALING_MODES["BOUNDED"])
    await expect(page.get_by_label("Max workers")).to_have_attribute("placeholder", "No limit")


async def test_the_load_mode_shows_its_own_fields(page: Page) -> None:
    await opened(page, "/templates/new", "New template")

    for mode, fields in LOADS.items():
        await choose(page, "Load mode", LOAD_MODES[mode])
        await expect(page.get_by_label(max(fields), exact=True)).to_be_visible()
        assert await shown(page, set().union(*LOADS.values())) == fields, mode


@pytest.mark.parametrize(
    ("typed", "field", "words"),
    [
        ({"Min workers": "5", "Max workers": "2"}, "Min workers", "min_workers > max_workers (5 > 2)"),
        ({"Warmup (s)": "-3"}, "Warmup (s)", "expected 0 or more, got -3"),
        ({"Name": ""}, "Name", "expected a name"),
    ],
)
async def test_wrong_input_is_named_at_its_field_and_nothing_is_kept(
    page: Page, served: Served, typed: dict[str, str], field: str, words: str
) -> None:
    await opened(page, "/templates/new", "New template")
    await page.get_by_label("Name", exact=True).fill("never kept")
    await choose(page, "Scaling mode", SCALING_MODES["BOUNDED"])
    for label, value in typed.items():
        await page.get_by_label(label, exact=True).fill(value)
    await page.get_by_role("button", name="Save").click()

    wrong = page.locator(".q-field--error")
    await expect(wrong).to_have_count(1)
    await expect(wrong).to_contain_text(words)
    assert await wrong.get_by_label(field, exact=True).count() == 1
    async with open_store(served.store) as store:
        assert await store.templates.list("never kept") == []


async def test_fixed_needs_workers_and_connections(page: Page) -> None:
    await opened(page, "/templates/new", "New template")
    await page.get_by_label("Name", exact=True).fill("fixed")
    await choose(page, "Scaling mode", SCALING_MODES["FIXED"])
    await page.get_by_label("Workers", exact=True).fill("5")
    await page.get_by_role("button", name="Save").click()

    await expect(page.locator(".q-field--error")).to_contain_text("FIXED needs both")


async def test_weights_of_ones_own_have_to_total_100(page: Page) -> None:
    await opened(page, "/templates/new", "New template")
    await page.get_by_label("Name", exact=True).fill("weights")
    await choose(page, "Workload type", "Custom SQL for lookup, scan, insert and update")
    await page.get_by_label("Insert (%)").fill("90")
    await page.get_by_label("Insert SQL").fill("INSERT INTO {table} VALUES (?)")
    await expect(page.get_by_text("Total weight: 90 % (must be 100 %)")).to_be_visible()
    await page.get_by_role("button", name="Save").click()

    await expect(page.locator(".q-field--error")).to_contain_text("expected custom_*_pct fields that total 100, got 90")


async def test_operations_of_ones_own_are_written_on_the_form(page: Page, served: Served) -> None:
    await opened(page, "/templates/new", "New template")
    await page.get_by_label("Name", exact=True).fill("own operations")
    await choose(page, "Workload type", "Custom operations")
    for n, (kind, weight, sql) in enumerate((("POINT_LOOKUP", "60", "SELECT 1"), ("sum it", "40", "SELECT sum(id) FROM t")), 1):
        await page.get_by_role("button", name="Add operation").click()
        await page.get_by_label(f"Name of operation {n}").fill(kind)
        await page.get_by_label(f"Weight of operation {n} (%)").fill(weight)
        await page.get_by_label(f"SQL of operation {n}").fill(sql)
    await page.get_by_label("SQL of operation 1").fill("SELECT * FROM t WHERE id = $1")
    await page.get_by_label("Values of operation 1 (JSON)").fill("{key:")
    await page.get_by_role("button", name="Save").click()
    await expect(
        page.get_by_role("alert").filter(has_text="Values of operation 1 (JSON): expected a JSON list")
    ).to_be_visible()

    await page.get_by_label("Values of operation 1 (JSON)").fill('[{"key": {"low": 1, "high": 500}}]')
    await check_accessible(page)
    await page.get_by_role("button", name="Save").click()

    await expect(page.get_by_role("heading", name="own operations", level=1)).to_be_visible()
    await expect(page.get_by_label("SQL of operation 2")).to_have_value("SELECT sum(id) FROM t")
    async with open_store(served.store) as store:
        kept = await store.templates.get("own operations")
    assert kept.config["workload"]["operations"] == [
        {
            "kind": "POINT_LOOKUP",
            "weight": 60,
            "sql": "SELECT * FROM t WHERE id = $1",
            "values": [{"key": {"low": 1, "high": 500}}],
        },
        {"kind": "sum it", "weight": 40, "sql": "SELECT sum(id) FROM t"},
    ]


async def test_a_used_template_is_read_only_and_offers_a_copy(page: Page) -> None:
    await opened(page, "/templates", "Templates")
    await followed(page, page.get_by_role("link", name="used once"))

    await expect(page.get_by_role("note")).to_contain_text("Read-only")
    await expect(page.get_by_role("button", name="Save")).to_have_count(0)
    await expect(page.get_by_label("Name", exact=True)).to_be_disabled()
    await check_accessible(page)
    await page.get_by_role("button", name="Copy").click()

    await expect(page.get_by_role("heading", name="used once (2)", level=1)).to_be_visible()
    await expect(page.get_by_role("button", name="Save")).to_be_enabled()


async def test_the_document_may_be_written_as_yaml(page: Page, served: Served) -> None:
    await opened(page, "/templates/new", "New template")
    await page.get_by_label("Name", exact=True).fill("by hand")
    await page.get_by_role("button", name="YAML").click()
    document = page.get_by_label("Template (YAML)")
    await expect(document).to_have_value(
        "name: by hand\nworkload:\n  preset: read-heavy\nscaling:\n  mode: AUTO\nload_mode: CONCURRENCY\n"
    )

    await document.fill("name: by hand\nload_mode: SIDEWAYS\n")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("alert").filter(has_text="load_mode")).to_be_visible()
    await document.fill("name: by hand\nload_mode: QPS\ntarget_qps: 250\n")
    await page.get_by_role("button", name="Form").click()
    await expect(page.get_by_label("Target operations/s")).to_have_value("250")
    await page.get_by_role("button", name="Save").click()

    await expect(page.get_by_role("heading", name="by hand", level=1)).to_be_visible()


async def test_of_two_who_change_one_template_the_second_is_told(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        kept = await store.templates.get("accounts, read-heavy")
        await store.templates.create(type(kept)(template_id="tpl-two", name="two change it", config=kept.config))
        await opened(page, "/templates/tpl-two", "two change it")
        await page.get_by_label("Description", exact=True).fill("mine")
        config = {**kept.config, "concurrent_connections": 7}
        await store.templates.save(type(kept)(template_id="tpl-two", name="two change it", config=config))

        await page.get_by_role("button", name="Save").click()

        await expect(page.get_by_text("was changed by someone else meanwhile")).to_be_visible()
        await expect(page.get_by_label("Description", exact=True)).to_have_value("mine")
        left = await store.templates.get("tpl-two")
        assert (left.description, left.config["concurrent_connections"]) == (None, 7)
        await store.templates.delete("tpl-two")


async def test_templates_are_found_by_tag_and_name_and_deleted_after_a_question(page: Page, served: Served) -> None:
    async with open_store(served.store) as store:
        kept = await store.templates.get("accounts, read-heavy")
        await store.templates.create(type(kept)(template_id="tpl-old", name="old one", config=kept.config, tags=("old",)))
    await opened(page, "/templates?tag=old&database=sqlite&load_mode=FIND_MAX_CONCURRENCY", "Templates")
    await expect(page.get_by_role("link", name="accounts, read-heavy")).to_have_count(0)

    await page.get_by_role("button", name="Delete old one").click()
    await page.get_by_role("alertdialog").get_by_role("button", name="Go back").click()
    await expect(page.get_by_role("alertdialog")).to_have_count(0)
    await expect(page.get_by_role("link", name="old one")).to_be_visible()
    await page.get_by_role("button", name="Delete old one").click()
    await page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()

    await expect(page.get_by_role("link", name="old one")).to_have_count(0)


async def test_running_a_template_prepares_a_run_and_goes_to_it(page: Page, served: Served) -> None:
    await opened(page, "/templates?search=read-heavy", "Templates")
    await page.get_by_role("button", name="Copy").first.click()
    await expect(page.get_by_role("link", name="accounts, read-heavy (2)")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="accounts, read-heavy (2)")
    await row.get_by_role("button", name="Create run").click()

    await page.wait_for_url("**/runs/*")
    async with open_store(served.store) as store:
        assert (await store.templates.get("accounts, read-heavy (2)")).usage_count == 1
