from app import count_words, fetch, huey


def test_words_are_counted():
    huey.immediate = True
    assert huey.enqueue(fetch.s("https://example.org").then(count_words)).get() == ["a page from https://example.org", 4]
