from app import count_words, fetch

print(fetch.job("https://example.org").then(count_words).push().result(timeout=60))
