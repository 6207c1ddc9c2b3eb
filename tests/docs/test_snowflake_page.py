"""The scripts that set up a Snowflake account grant the privileges that our statements need, and no others."""

import re

import pytest

from docs.pages import page, section

#: Every privilege that our statements need, and the statements that need it. Who creates a table, view or service owns it.
LOAD = {
    "USAGE ON WAREHOUSE": "statements of a load run on the warehouse under test",
    "MONITOR ON WAREHOUSE": "SHOW WAREHOUSES shows running and queued statements",
    "USAGE ON DATABASE": "every statement on a table",
    "USAGE ON SCHEMA": "every statement on a table",
    "CREATE TABLE ON SCHEMA": "bench prepare with tables=standard, and tables without a primary key",
    "CREATE HYBRID TABLE ON SCHEMA": "bench prepare with tables=hybrid",
    "MODIFY ON WAREHOUSE": "ALTER WAREHOUSE … SET, if a template changes the warehouse",
    "OPERATE ON WAREHOUSE": "ALTER WAREHOUSE … RESUME, if a template says so",
    "DATABASE ROLE SNOWFLAKE.GOVERNANCE_VIEWER": "SNOWFLAKE.ACCOUNT_USAGE.QUERY_HISTORY, after long runs",
    "MONITOR USAGE ON ACCOUNT": "INFORMATION_SCHEMA.WAREHOUSE_METERING_HISTORY: credits as metered",
}
ENGINE = {
    "USAGE ON DATABASE": "every statement on a service",
    "USAGE ON SCHEMA": "every statement on a service",
    "CREATE SERVICE ON SCHEMA": "EXECUTE JOB SERVICE",
    "USAGE ON COMPUTE POOL": "EXECUTE JOB SERVICE … IN COMPUTE POOL",
    "READ ON IMAGE REPOSITORY": "the image in a service's specification",
}
REACHING = {
    "READ ON SECRET": "the secrets in a service's specification",
    "USAGE ON INTEGRATION": "EXTERNAL_ACCESS_INTEGRATIONS of a service",
}
STORE = {
    "USAGE ON WAREHOUSE": "statements of the store run on it",
    "USAGE ON DATABASE": "every statement on a table",
    "USAGE ON SCHEMA": "every statement on a table",
    "CREATE TABLE ON SCHEMA": "tables=standard, and the tables schema_version and unfinished_copy",
    "CREATE HYBRID TABLE ON SCHEMA": "tables=hybrid",
    "CREATE VIEW ON SCHEMA": "CREATE VIEW",
}
_GRANT = re.compile(
    r"GRANT (?P<privileges>[A-Z ,]+) ON (?P<kind>[A-Z]+|COMPUTE POOL|IMAGE REPOSITORY)(?P<object> [A-Za-z_.]+)?"
    r" TO ROLE (?P<role>\w+)"
    r"|GRANT (?P<database_role>DATABASE ROLE [A-Z_.]+) TO ROLE (?P<owner>\w+)"
)
_CREATE = re.compile(
    r"CREATE (?P<kind>[A-Z]+(?: POOL| REPOSITORY| ACCESS INTEGRATION)?) (?:IF NOT EXISTS )?(?P<name>[A-Za-z_.]+)"
)


def script(name: str, heading: str) -> list[str]:
    """The SQL statements under a heading of a page, without comments."""
    blocks = re.findall(r"^ *```sql\n(.*?)^ *```", section(page(name), heading), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if not line.lstrip().startswith("--")]
    return [" ".join(each.split()) for each in "\n".join(lines).split(";") if each.strip()]


def granted(statements: list[str], role: str) -> set[str]:
    found: set[str] = set()
    for each in filter(None, map(_GRANT.fullmatch, statements)):
        if (each["role"] or each["owner"]).lower() != role:
            continue
        kind = each["kind"]
        found |= {f"{one} ON {kind}" for one in each["privileges"].split(", ")} if kind else {each["database_role"]}
    return found


@pytest.mark.parametrize(
    ("name", "heading", "role", "needed"),
    [
        ("snowflake", "## Set up an account", "drumbeat_load", LOAD),
        ("snowflake", "## Set up an account", "drumbeat_engine", ENGINE),
        ("engines", "## Five minutes: Snowflake", "drumbeat_engine", ENGINE | REACHING),
        ("snowflake-store", "## Setting it up", "drumbeat_store", STORE),
    ],
)
def test_a_role_gets_the_privileges_that_our_statements_need_and_no_others(
    name: str, heading: str, role: str, needed: dict[str, str]
) -> None:
    assert granted(script(name, heading), role) == set(needed)


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("snowflake", "## Set up an account"),
        ("engines", "## Five minutes: Snowflake"),
        ("snowflake-store", "## Setting it up"),
    ],
)
def test_what_is_granted_was_created_before(name: str, heading: str) -> None:
    created: set[tuple[str, str]] = set()
    for each in script(name, heading):
        if made := _CREATE.match(each):
            created.add((made["kind"].removeprefix("EXTERNAL ACCESS "), made["name"].lower()))
        elif grant := _GRANT.fullmatch(each):
            role, given = grant["role"] or grant["owner"], (grant["object"] or "").strip().lower()
            assert ("ROLE", role.lower()) in created, each
            assert not given or (grant["kind"], given) in created, each
        elif each.startswith("GRANT"):
            role, user = re.fullmatch(r"GRANT ROLE (\w+) TO USER (\w+)", each).groups()  # type: ignore[union-attr]
            assert {("ROLE", role.lower()), ("USER", user.lower())} <= created, each


def test_the_first_example_uses_what_the_script_creates() -> None:
    text = page("snowflake")
    example = re.search(r"'snowflake://(\w+)@[\w-]+/(\w+)/(\w+)\?warehouse=(\w+)&tables=hybrid'", text)
    assert example is not None
    user, database, schema, warehouse = (each.lower() for each in example.groups())
    statements = [each.lower() for each in script("snowflake", "## Set up an account")]

    for made in (f"create user {user} ", f"create database {database}", f"create schema {database}.{schema}"):
        assert [each for each in statements if f"{each} ".startswith(made)], made
    assert [each for each in statements if each.startswith(f"create warehouse {warehouse} ")]
