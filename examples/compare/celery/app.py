from celery import Celery
from celery.schedules import crontab

app = Celery("app", broker="redis://localhost", backend="redis://localhost")
app.conf.beat_schedule = {"clean up": {"task": "app.clean_up", "schedule": crontab(minute="*/5")}}


@app.task(autoretry_for=(Exception,), max_retries=2)
def fetch(url):
    return f"a page from {url}"


@app.task
def count_words(page):
    return len(page.split())


@app.task
def clean_up(): ...
