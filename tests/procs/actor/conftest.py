"""A host with its agent for each test."""

from __future__ import annotations

import pytest

from danaus.testing.hosts import Hosts


@pytest.fixture
def one(tmp_path, request):
    """One host."""
    with Hosts(1, tmp_path, module=request.module) as hosts:
        yield hosts


@pytest.fixture
def two(tmp_path, request):
    """Two hosts."""
    with Hosts(2, tmp_path, module=request.module) as hosts:
        yield hosts
