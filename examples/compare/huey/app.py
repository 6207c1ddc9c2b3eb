from huey import SqliteHuey, crontab

huey = SqliteHuey(filename="huey.db")


@huey.task(retries=2)
def fetch(url):
    return f"a page from {url}"


@huey.task()
def count_words(page):
    return len(page.split())


@huey.periodic_task(crontab(minute="*/5"))
def clean_up(): ...
