"""The page on Snowflake as a store knows its options and every limit that the store declares."""

from docs.pages import page, rows, section
from docs.test_store_page import options
from drumbeat.store.contract import PoolContract, StoreContract
from drumbeat.store.sql.snowflake import SnowflakeDatabase
from drumbeat.store.sql.snowflake_sign_in import SnowflakeSignIn
from store import test_snowflake

TEXT = page("snowflake-store")
SIGN_IN = SnowflakeSignIn(account="a", user="u", secret="s", database="d", schema="s")


def test_every_option_is_there_with_its_default() -> None:
    told = {row[0].strip("`"): row[1].strip("`") for row in rows(section(TEXT, "## Options"))}

    assert told == options(SnowflakeDatabase)


def test_every_limit_is_there_and_no_other() -> None:
    told = [line[2:] for line in section(TEXT, "## Limits").splitlines() if line.startswith("- ")]

    assert told == [*SnowflakeDatabase(SIGN_IN, tables="standard").traits.limits]


def test_no_case_of_the_contract_is_left_out() -> None:
    """A case that is replaced or skipped must be named on the page, with its reason, and here."""
    parts = (test_snowflake.TestSnowflakeStore, test_snowflake.TestSnowflakePool)
    replaced = {name for part in parts for name in vars(part) if name.startswith("test_")}

    assert issubclass(parts[0], StoreContract)
    assert issubclass(parts[1], PoolContract)
    assert replaced == set()
    assert "none is left out" in section(TEXT, "## Limits")
