from app import count_words, fetch
from celery import chain

print(chain(fetch.s("https://example.org"), count_words.s()).delay().get(timeout=60))
