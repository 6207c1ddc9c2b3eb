"""What an example of a failure says, and what it must not."""

import pytest

from drumbeat.bench.driver.samples import unquoted


@pytest.mark.parametrize(
    ("sqlstate", "words", "kept"),
    [
        ("42P01", 'relation "orders" does not exist', 'relation "orders" does not exist'),
        (
            "23505",
            'duplicate key value violates unique constraint "t_pkey"',
            'duplicate key value violates unique constraint "t_pkey"',
        ),
        ("22P02", 'invalid input syntax for type integer: "secret"', "invalid input syntax for type integer: ?"),
        ("22003", 'value "99999999999" is out of range for type integer', "value ? is out of range for type integer"),
        ("P0001", 'no account "7" of "me', "no account ? of ?"),
        ("22012", "division by zero", "division by zero"),
    ],
)
def test_names_are_kept_and_values_are_not(sqlstate: str, words: str, kept: str) -> None:
    assert unquoted(sqlstate, words) == kept
