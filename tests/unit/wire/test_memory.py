"""Memory for large parts is used again, and never while somebody refers to it."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from danaus.wire import memory as memory_module
from danaus.wire.memory import POOLED_BYTES, received_part


def address(part):
    return ctypes.addressof(ctypes.c_char.from_buffer(part))


@pytest.fixture(autouse=True)
def nothing_kept():
    memory_module._free.clear()
    yield
    memory_module._free.clear()


def test_it_is_used_again_once_nothing_refers_to_it():
    first = received_part(POOLED_BYTES)
    view, where = first[7:9], address(first)
    del first
    second = received_part(POOLED_BYTES)
    assert address(second) != where  # a view of the first still is
    del view
    third = received_part(POOLED_BYTES)
    assert address(third) == where
    third[:] = b"x" * POOLED_BYTES
    assert len(third) == POOLED_BYTES


def test_what_is_kept_is_bounded_and_never_much_too_large():
    parts = [received_part(64 << 20) for _ in range(6)]
    del parts
    small = received_part(POOLED_BYTES)
    assert sum(map(len, memory_module._free)) == 256 << 20
    small[:3] = b"abc"
    assert bytes(small[:3]) == b"abc"


def test_memory_is_had_where_there_are_no_huge_pages(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    part = received_part(POOLED_BYTES)
    part[:] = b"x" * POOLED_BYTES
