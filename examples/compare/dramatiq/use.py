from app import count_words, fetch
from dramatiq import pipeline

print(pipeline([fetch.message("https://example.org"), count_words.message()]).run().get_result(block=True, timeout=60_000))
