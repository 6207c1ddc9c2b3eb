from app import count_words, fetch

from drumbeat.testing import immediate


def test_words_are_counted() -> None:
    with immediate():
        assert count_words.push(fetch.push("https://example.org").result()).result() == 4
