"""A Prometheus that has seen real runs; it is started once for all tests that ask for it."""

from types import SimpleNamespace

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry

from .prometheus import Endpoint, Prometheus, Still
from .rules import RULES
from .scripted_runs import Rounds

ROUNDS = 2


@pytest.fixture(scope="session")
def fed_prometheus(tmp_path_factory):
    """A Prometheus after two rounds of runs that are alike, with one more run under way.

    A rate needs two values of a series, and a round seen whole: so each is played between two scrapes.
    """
    registry = CollectorRegistry()
    meters = MeterProvider([PrometheusMetricReader(registry=registry)], shutdown_on_exit=False)
    still, rounds = Still(registry), Rounds(meters)
    folder = tmp_path_factory.mktemp("prometheus")
    with Endpoint(still) as endpoint, Prometheus(folder, endpoint.address, RULES) as prometheus:
        rounds.start_waiting()
        try:
            for number in range(1, ROUNDS + 1):
                rounds.play()
                still.look()
                prometheus.wait_for(lambda: is_scraped(prometheus, number), f"round {number}")  # noqa: B023
            yield SimpleNamespace(prometheus=prometheus, endpoint=endpoint, rounds=rounds)
        finally:
            rounds.stop_waiting()
    meters.shutdown()


def is_scraped(prometheus, number):
    """Whether two scrapes have seen a round, and the rules were evaluated since."""
    runs = 'gen_ai_invoke_agent_duration_seconds_count{gen_ai_agent_name="researcher"}'
    return bool(prometheus.query(f"{runs} == {number} and {runs} offset 2s == {number}"))


@pytest.fixture
def prometheus(fed_prometheus):
    """The Prometheus itself."""
    return fed_prometheus.prometheus
