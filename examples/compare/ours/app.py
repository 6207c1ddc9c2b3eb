import drumbeat


@drumbeat.task(max_attempts=3)
def fetch(url: str) -> str:
    return f"a page from {url}"


@drumbeat.task
def count_words(page: str) -> int:
    return len(page.split())


@drumbeat.task(cron="*/5 * * * *")
def clean_up() -> None: ...
