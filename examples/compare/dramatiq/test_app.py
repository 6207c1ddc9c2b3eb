import app
import dramatiq
from dramatiq.brokers.stub import StubBroker
from dramatiq.results import Results
from dramatiq.results.backends import StubBackend


def test_words_are_counted():
    broker = StubBroker()
    broker.add_middleware(Results(backend=StubBackend()))
    for actor in (app.fetch, app.count_words):
        actor.broker = broker
        broker.declare_actor(actor)
    worker = dramatiq.Worker(broker)
    worker.start()
    found = dramatiq.pipeline([app.fetch.message("https://example.org"), app.count_words.message()], broker=broker).run()
    assert found.get_result(block=True, timeout=60_000) == 4
    worker.stop()
