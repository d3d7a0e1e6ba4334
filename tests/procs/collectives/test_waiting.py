"""A member whose peers let it wait falls asleep, in a real group, and is woken by what comes."""

import threading

import pytest
import torch

from danaus.collectives import socket_group
from danaus.collectives.waiting import wait_for_events
from danaus.testing.groups import Member, form_all, member_names, plan_one_leaf_each, soon


class Watched:
    """The kernel's poll of one wait; says when it sleeps.

    Args:
        poller: Which one.
        asleep: Set when somebody is about to sleep.
    """

    def __init__(self, poller, asleep):
        self._poller, self._asleep = poller, asleep

    def poll(self, timeout_ms):
        if timeout_ms:
            self._asleep.set()
        return self._poller.poll(timeout_ms)


@pytest.fixture
def asleep(monkeypatch):
    """Return what is set when a member sleeps."""
    event = threading.Event()

    def watched(poller, deadline):
        return wait_for_events(Watched(poller, event), deadline)

    monkeypatch.setattr(socket_group, "wait_for_events", watched)
    return event


def small(group):
    return group.exchange_small(group.me.encode(), deadline=soon())


def large(group):
    plan, total = plan_one_leaf_each(2), torch.empty(100)
    partial = torch.full((100,), 2.0)
    group.reduce_tree([partial], total, plan=plan, subset=group.names, deadline=soon())
    return total[0].item()


@pytest.mark.parametrize("exchange", [small, large])
def test_a_member_that_waits_sleeps_and_is_woken_by_its_peer(sites, asleep, exchange):
    first, second = form_all(sites(2), member_names(2))
    waiting = Member(lambda: exchange(first))
    # Only now: if the first never slept, nobody would ever come.
    assert asleep.wait(20.0)
    assert exchange(second) == waiting.outcome()
    first.close()
    second.close()


def test_a_member_that_sleeps_is_woken_by_an_abort(sites, asleep):
    first, second = form_all(sites(2), member_names(2))
    waiting = Member(lambda: small(first))
    assert asleep.wait(20.0)
    first.abort("the test is over")
    assert "the test is over" in str(waiting.outcome())
    first.close()
    second.close()
