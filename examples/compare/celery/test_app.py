from app import app, count_words, fetch
from celery import chain


def test_words_are_counted():
    app.conf.task_always_eager = True
    assert chain(fetch.s("https://example.org"), count_words.s()).delay().get() == 4
