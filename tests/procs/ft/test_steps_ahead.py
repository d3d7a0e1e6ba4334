"""What a learner that has caught up fetches while its ask is on its way, over real sockets."""

from __future__ import annotations

import threading

import pytest
import torch
from tests.procs.ft.lesson_parts import DONOR, E1, LINEAGE, NUM_ELEMENTS, SEAT, Donors, Work

from danaus.core.errors import ExchangeAborted, TransferFailed
from danaus.ft.lesson import Lesson
from danaus.ft.observer import Observer
from danaus.ft.step_events import Learn
from danaus.ft.steps_ahead import MOST_AHEAD, StepsAhead, StepShape
from danaus.ft.transfer import Fetch
from danaus.quorum.messages import Learner
from danaus.testing.groups import Member, soon

SHAPE = StepShape(LINEAGE, NUM_ELEMENTS, 1)


@pytest.fixture
def ahead(donors, secret):
    """Return a function that makes donors at a step, and what fetches the steps after it."""
    made = []

    def make(after=5, num_donors=2, shape=SHAPE):
        at = Donors(donors(num_donors), after)
        addresses = {f"d{n}": site.address for n, site in enumerate(at.sites)}

        def fetch(wanted, into, arrived):
            return Fetch(addresses, secret, wanted, into=into, on_bytes=arrived)

        made.append(StepsAhead(after, shape, fetch))
        return at, made[-1]

    yield make
    for each in made:
        each.end()


def take(ahead, step, last=None):
    """Return a step that is there or on its way; by then it is."""
    return ahead.take(step, last or step, lambda _num_bytes: None)


def num_threads():
    return sum(thread.name == "danaus ahead" for thread in threading.enumerate())


def test_each_step_is_fetched_as_the_donors_come_to_keep_it(ahead):
    at, fetching = ahead(after=5)
    at.go_on(2)
    for step in (6, 7):
        (got,) = take(fetching, step, last=8).steps
        assert (got.step, got.epoch, got.measures) == (step, E1, (1.0,))
    taker = Member(lambda: take(fetching, 8))
    assert not taker.ended_within(0.05)
    at.go_on(1)
    assert taker.outcome().steps[0].step == 8


def test_what_does_not_come_from_here_is_said_at_once(ahead):
    at, fetching = ahead(after=5)
    at.go_on(2)
    assert take(fetching, 6, last=9) is not None
    assert take(fetching, 9) is None, "7 comes first"
    assert fetching.leads_from(5, LINEAGE)
    assert not fetching.leads_from(6, LINEAGE)
    assert not fetching.leads_from(5, LINEAGE + 1)


def test_donors_that_keep_nothing_are_not_waited_for_once_the_step_is_wanted(ahead):
    _, fetching = ahead(after=5, shape=StepShape(LINEAGE + 1, NUM_ELEMENTS, 1))
    assert take(fetching, 6) is None


def test_no_more_are_kept_than_there_is_room_for(ahead):
    at, fetching = ahead(after=5)
    at.go_on(MOST_AHEAD + 3)
    got = [take(fetching, step, last=99).steps[0].step for step in range(6, 6 + MOST_AHEAD + 3)]
    assert got == list(range(6, 6 + MOST_AHEAD + 3))


def test_a_gradient_that_was_not_voted_on_is_none(ahead):
    at, fetching = ahead(after=5, num_donors=1)
    (site,) = at.sites
    add = site.server.log.add

    def flipped(applied):
        applied.gradient[3] += 1.0
        add(applied)

    site.server.log.add = flipped
    at.go_on(1)
    assert take(fetching, 6) is None


def test_a_donor_that_dies_is_done_without_and_all_of_them_end_it(ahead):
    at, fetching = ahead(after=5)
    at.sites.pop(0).close()
    at.go_on(1)
    assert take(fetching, 6, last=9) is not None
    taker = Member(lambda: take(fetching, 7, last=9))
    at.sites[0].close()
    assert taker.outcome() is None


def test_who_waits_for_a_step_can_be_called_away(ahead):
    _, fetching = ahead(after=5)

    def leave(_num_bytes):
        raise ExchangeAborted("the epoch ended")

    taker = Member(lambda: fetching.take(6, 6, leave))
    assert not taker.ended_within(0.05)
    fetching.wake()
    assert isinstance(taker.outcome(), ExchangeAborted)


def test_nothing_is_left_of_it_in_the_end(ahead):
    before = num_threads()
    _, fetching = ahead(after=5)
    assert num_threads() == before + 1
    fetching.end()
    assert num_threads() == before
    fetching.end()
    assert take(fetching, 6) is None


def test_a_lesson_is_over_without_a_transfer_where_all_was_fetched_ahead(ahead, secret):
    at, fetching = ahead(after=5)
    work = Work(5)
    at.go_on(2)
    wanted = []

    def get(what, into, arrived):
        wanted.append(what.what)
        if what.what != "print":
            raise TransferFailed(what.step, {"d0": "it is not to be asked"})
        addresses = {f"d{n}": site.address for n, site in enumerate(at.sites)}
        return Fetch(addresses, secret, what, into=into, on_bytes=arrived).run(soon())

    order = Learn(E1, 7, Learner(SEAT, (DONOR,)), LINEAGE, held_step=5)
    fetched = {step: fetching.take(step, 7, lambda _: None) for step in (6, 7)}
    at.wait()
    ahead_of = lambda step, _last, _arrived: fetched.pop(step)  # noqa: E731
    learned = Lesson(order, work, observer=Observer(), get=get, ahead=ahead_of).take()
    assert (learned.step, learned.fingerprint) == (7, at.work.fingerprint())
    assert torch.equal(work.named["w"], at.work.named["w"])
    assert wanted == ["print"]
