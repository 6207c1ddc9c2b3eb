from app import count_words, fetch

page = fetch.push("https://example.org").result(timeout=60)
print(count_words.push(page).result(timeout=60))
