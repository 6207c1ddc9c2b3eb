from app import count_words, fetch, huey

results = huey.enqueue(fetch.s("https://example.org").then(count_words))
print(results.get(blocking=True, timeout=60)[-1])
