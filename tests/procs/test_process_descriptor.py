"""P-1, where the kernel has no pidfd: a kqueue tells of an end.

There is no kqueue here: a stand-in takes the same calls, and watches by a pidfd all the same.
"""

import os
import select
import signal
import subprocess
import sys

import pytest
from tests.procs.elsewhere import KQUEUE

from danaus.core import process_descriptor
from danaus.core.process_descriptor import open_process, signal_process

LIMIT_MS = 20_000


@pytest.fixture(params=["pidfd", "kqueue"])
def kernel(request, monkeypatch):
    if request.param == "kqueue":
        monkeypatch.setattr(process_descriptor, "_kernel", KQUEUE)
        monkeypatch.delattr(os, "pidfd_open")
        monkeypatch.delattr(signal, "pidfd_send_signal")
    return request.param


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def has_ended(descriptor, limit_ms):
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(limit_ms))


def test_its_end_is_told_and_signals_reach_nobody_afterwards(kernel, child):
    descriptor = open_process(child.pid)
    try:
        signal_process(descriptor, child.pid, 0)
        assert not has_ended(descriptor, 0)
        signal_process(descriptor, child.pid, signal.SIGTERM)
        assert has_ended(descriptor, LIMIT_MS)
        assert child.wait() == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            signal_process(descriptor, os.getpid(), 0)  # as if its pid were another's now
    finally:
        os.close(descriptor)


def test_a_process_that_is_not_there_has_none(kernel, child):
    child.kill()
    child.wait()
    with pytest.raises(ProcessLookupError):
        open_process(child.pid)


def test_one_that_has_ended_has_a_descriptor_or_none_until_it_is_reaped(kernel, child):
    held = open_process(child.pid)
    child.kill()
    assert has_ended(held, LIMIT_MS)
    os.close(held)
    if kernel == "pidfd":
        held = open_process(child.pid)
        assert has_ended(held, 0)
        os.close(held)
    else:
        with pytest.raises(ProcessLookupError):
            open_process(child.pid)
    child.wait()
