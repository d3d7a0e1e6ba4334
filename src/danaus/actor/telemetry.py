"""Metrics and traces by opentelemetry where it is installed; else they cost nothing.

Owns ``get_meter``, ``span`` and ``traced``: thin, so that a program says what it measures once and
whoever runs it decides where that goes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

P = ParamSpec("P")
R = TypeVar("R")

_NAME = "danaus"
Attributes = Mapping[str, str | int | float | bool]


class Instrument(Protocol):
    """A counter, a gauge or a histogram; each knows the one of these that is its own."""

    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        """Count up (or down)."""

    def record(self, amount: float, attributes: Attributes | None = None) -> None:
        """Take one measurement into a histogram."""

    def set(self, amount: float, attributes: Attributes | None = None) -> None:
        """Say what a gauge shows now."""


class Meter(Protocol):
    """Makes instruments; opentelemetry's has more."""

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Instrument:
        """Return something that only counts up."""

    def create_up_down_counter(
        self, name: str, unit: str = "", description: str = ""
    ) -> Instrument:
        """Return something that counts."""

    def create_histogram(self, name: str, unit: str = "", description: str = "") -> Instrument:
        """Return something that takes many measurements."""

    def create_gauge(self, name: str, unit: str = "", description: str = "") -> Instrument:
        """Return something that shows the last measurement."""


class _Nothing:
    """Every instrument, and the meter that makes them, where nobody measures."""

    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        """Do nothing."""

    record = set = add

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Instrument:
        """Return what does nothing."""
        return self

    create_up_down_counter = create_histogram = create_gauge = create_counter


_NOTHING = _Nothing()
_NO_SPAN: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()


def get_meter(name: str = _NAME) -> Meter:
    """Return opentelemetry's meter of this name, or one that measures nothing."""
    metrics = _opentelemetry("metrics")
    return _NOTHING if metrics is None else cast(Meter, metrics.get_meter(name))


def span(name: str, attributes: Attributes | None = None) -> contextlib.AbstractContextManager[Any]:
    """Return a ``with`` block that is one span of a trace; without opentelemetry it is nothing."""
    trace = _opentelemetry("trace")
    if trace is None:
        return _NO_SPAN
    started = trace.get_tracer(_NAME).start_as_current_span(name, attributes=attributes)
    return cast("contextlib.AbstractContextManager[Any]", started)


@overload
def traced(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def traced(*, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def traced(function: Callable[..., Any] | None = None, *, name: str = "") -> Any:
    """Make each call of a function a span, called as the function is, plain or async.

    Args:
        function: The function; None: used as ``@traced(name=...)``.
        name: Of the spans; empty: as the function is called.
    """
    if function is None:
        return lambda given: _traced(given, name)
    return _traced(function, name)


def _traced(function: Callable[P, R], name: str) -> Callable[P, R]:
    if _opentelemetry("trace") is None:
        return function
    name = name or function.__qualname__
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            with span(name):
                return await function(*args, **kwargs)

        return cast("Callable[P, R]", awaited)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        with span(name):
            return function(*args, **kwargs)

    return called


@functools.cache
def _opentelemetry(part: str) -> Any:
    try:
        return importlib.import_module(f"opentelemetry.{part}")
    except ImportError:
        return None
