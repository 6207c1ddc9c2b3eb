"""What an example of a failure says, and what it must not."""

import pytest

from drumbeat.bench.driver.samples import mask_quoted, mask_values


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
    assert mask_quoted(sqlstate, words) == kept


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("duplicate key 4711 for ada@example.org", "duplicate key ? for ?"),
        ("row 47110 of t4711 is locked", "row 47110 of t4711 is locked"),
    ],
)
def test_what_a_database_repeats_of_what_it_was_given_is_not_kept(message: str, kept: str) -> None:
    assert mask_values(message, [[4711, "ada@example.org"], [""]]) == kept
