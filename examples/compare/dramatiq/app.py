import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from periodiq import PeriodiqMiddleware, cron

broker = RedisBroker()
broker.add_middleware(Results(backend=RedisBackend()))
broker.add_middleware(PeriodiqMiddleware())
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=2, store_results=True)
def fetch(url):
    return f"a page from {url}"


@dramatiq.actor(store_results=True)
def count_words(page):
    return len(page.split())


@dramatiq.actor(periodic=cron("*/5 * * * *"))
def clean_up(): ...
