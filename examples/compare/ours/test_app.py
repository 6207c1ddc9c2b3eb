from app import count_words, fetch

from drumbeat.testing import immediate


def test_words_are_counted() -> None:
    with immediate():
        assert fetch.job("https://example.org").then(count_words).push().result() == 4
