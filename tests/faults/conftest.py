"""Hosts for tests that hurt them."""

from __future__ import annotations

import pytest

from danaus.testing.hosts import Hosts


@pytest.fixture
def make_hosts(tmp_path, request):
    """Return a function that makes hosts for a ``with`` block."""

    def make(num_hosts: int, **options) -> Hosts:
        return Hosts(num_hosts, tmp_path, module=request.module, **options)

    return make


@pytest.fixture
def one(make_hosts):
    """One host."""
    with make_hosts(1) as hosts:
        yield hosts


@pytest.fixture
def two(make_hosts):
    """Two hosts."""
    with make_hosts(2) as hosts:
        yield hosts
