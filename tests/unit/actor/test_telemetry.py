"""Metrics and traces by opentelemetry, and without it at no cost."""

from __future__ import annotations

import asyncio
import sys

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from danaus.actor import Actor, endpoint, get_meter, span, telemetry, traced


@pytest.fixture(scope="module")
def reader():
    """What opentelemetry was told of metrics; a process has one provider for good."""
    reader = InMemoryMetricReader()
    metrics.set_meter_provider(MeterProvider([reader]))
    return reader


@pytest.fixture(scope="module")
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def without(monkeypatch):
    """As where opentelemetry is not installed."""
    for name in ("opentelemetry", "opentelemetry.trace", "opentelemetry.metrics"):
        monkeypatch.setitem(sys.modules, name, None)
    telemetry._opentelemetry.cache_clear()
    yield
    telemetry._opentelemetry.cache_clear()


def test_what_is_measured_reaches_opentelemetry(reader):
    meter = get_meter("mine")
    meter.create_counter("calls").add(3, {"endpoint": "add"})
    meter.create_histogram("seconds", unit="s").record(0.5)
    data = reader.get_metrics_data()
    (scope,) = [scope for each in data.resource_metrics for scope in each.scope_metrics]
    assert scope.scope.name == "mine"
    found = {metric.name: next(iter(metric.data.data_points)) for metric in scope.metrics}
    assert found["calls"].value == 3
    assert found["seconds"].sum == 0.5


def test_functions_and_blocks_are_spans(spans):
    @traced
    def plain(k: int) -> int:
        with span("inner", {"k": k}):
            return k + 1

    @traced
    async def later(k: int) -> int:
        return plain(k) + 1

    assert asyncio.run(later(1)) == 3
    inner, outer, outermost = spans.get_finished_spans()
    assert (inner.name, dict(inner.attributes)) == ("inner", {"k": 1})
    assert outer.name.endswith("plain")
    assert outermost.name.endswith("later")
    assert inner.parent.span_id == outer.context.span_id
    assert outer.parent.span_id == outermost.context.span_id


def test_calls_of_an_endpoint_are_spans_where_that_is_asked_for(spans):
    class Measured(Actor):
        @endpoint(instrument=True, propagate=lambda k: k)
        async def seen(self, k: int) -> int:
            return k

        @endpoint
        def unseen(self, k: int) -> int:
            return k

    spans.clear()
    seen, unseen = Measured.__endpoints__["seen"], Measured.__endpoints__["unseen"]
    assert asyncio.run(seen.function(Measured(), 3)) == 3
    assert unseen.function(Measured(), 4) == 4
    assert [each.name.rpartition(".")[2] for each in spans.get_finished_spans()] == ["seen"]
    assert seen.is_async
    assert seen.propagate(5) == 5
    with pytest.raises(TypeError, match="seen"):
        seen.check((), {})


def test_a_span_has_the_name_that_it_is_given(spans):
    @traced(name="counting")
    def counted() -> int:
        return 1

    spans.clear()
    assert counted() == 1
    assert [each.name for each in spans.get_finished_spans()] == ["counting"]


def test_without_opentelemetry_nothing_is_in_the_way(without):
    def plain() -> int:
        return 1

    assert traced(plain) is plain
    assert traced(name="named")(plain) is plain
    assert span("a") is span("b")
    with span("a"), span("b"):
        counter = get_meter().create_counter("calls")
    counter.add(1)
    get_meter().create_histogram("seconds").record(0.5)
    get_meter().create_gauge("depth").set(2)
    get_meter().create_up_down_counter("open").add(-1)
