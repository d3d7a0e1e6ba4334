"""How a learner comes to the members' state over real sockets: all of it, or step by step."""

from __future__ import annotations

import pytest
from tests.procs.ft.lesson_parts import DONOR, E1, LINEAGE, SEAT, Donors, Work, gradient_of

from danaus.core.errors import StaleQuorum, TransferFailed
from danaus.ft.lesson import Lesson
from danaus.ft.observer import Observer
from danaus.ft.step_events import Learn
from danaus.ft.step_log import LoggedStep
from danaus.ft.transfer import Fetch
from danaus.quorum.messages import Epoch, Learner, Trail
from danaus.testing.groups import soon
from danaus.wire.position import Phase


class Watch(Observer):
    def __init__(self):
        self.positions, self.told = [], []

    def entered(self, step, phase, number):
        assert phase is Phase.LEARN
        self.positions.append((step, number))

    def learned(self, step, num_bytes_by_donor, duration_s):
        self.told.append(("learned", step))

    def caught_up(self, step, num_steps, *, num_bytes_by_donor, duration_s):
        self.told.append(("caught up", step, num_steps))


@pytest.fixture
def lesson(donors, secret):
    """Return a function that makes donors, a learner's work, its watch and its lesson."""

    def make(since, num_donors=2):
        return Donors(donors(num_donors), since), Work(), Watch()

    def take(at, work, watch, *, step, trail=None, held_step=None):
        order = Learn(E1, step, Learner(SEAT, (DONOR,), trail), LINEAGE, held_step)
        addresses = {f"d{n}": site.address for n, site in enumerate(at.sites)}

        def get(wanted, into, arrived):
            return Fetch(addresses, secret, wanted, into=into, on_bytes=arrived).run(soon())

        return Lesson(order, work, observer=watch, get=get).take()

    make.take = take
    return make


def test_it_applies_what_the_donors_did_since_and_stops_near_them(lesson):
    at, work, watch = lesson(since=5)
    at.go_on(8)
    learned = lesson.take(at, work, watch, step=5, trail=Trail(E1, 5))
    assert (learned.step, learned.committed_epoch) == (13, E1)
    assert learned.fingerprint == work.fingerprint() == at.work.fingerprint()
    assert watch.told == [("learned", 5), ("caught up", 13, 8)]
    assert watch.positions == sorted(set(watch.positions)), "it moved with each part"


def test_each_step_goes_by_the_numbers_that_the_donors_went_by(lesson):
    at, work, _ = lesson(since=5)
    at.go_on(4, numbers=(0.5, 3.0))
    told = []
    work.numbers, work.tune = (0.0, 0.0), told.append
    lesson.take(at, work, Observer(), step=5, trail=Trail(E1, 5))
    assert told == 4 * [(0.5, 3.0)]


def test_one_that_is_near_asks_at_once(lesson):
    at, work, watch = lesson(since=5)
    at.go_on(1)
    learned = lesson.take(at, work, watch, step=5, trail=Trail(E1, 5))
    assert (learned.step, learned.committed_epoch) == (5, Epoch(1, 3))
    assert watch.told == [("learned", 5), ("caught up", 5, 0)]


def test_one_that_does_not_come_nearer_asks_all_the_same(lesson):
    at, work, watch = lesson(since=5)
    at.go_on(4)
    apply = work.apply

    def slowly(step, flat, measures):
        apply(step, flat, measures)
        at.go_on()  # the donors are as fast

    work.apply = slowly
    learned = lesson.take(at, work, watch, step=5, trail=Trail(E1, 5))
    assert learned.step == 9
    assert at.work.step == 13


def test_what_is_missing_is_all_that_one_fetches_that_has_caught_up(lesson):
    at, work, watch = lesson(since=5)
    at.go_on(4)
    for step in range(1, 9):
        work.apply(step, gradient_of(step), (1.0,))
    at.wait()
    learned = lesson.take(at, work, watch, step=9, held_step=8)
    assert (learned.step, learned.fingerprint) == (9, at.work.fingerprint())
    assert watch.told == [("caught up", 9, 1)]


@pytest.mark.parametrize("why", ["no log", "a gap", "other bits"])
def test_where_that_does_not_lead_to_the_donors_state_all_of_it_is_fetched(lesson, why):
    at, work, watch = lesson(since=5)
    at.go_on(4)
    for step in range(1, 9):
        work.apply(step, gradient_of(step), (1.0,))
    for site in at.sites:
        if why == "no log":
            site.server.log.end()
        elif why == "a gap":
            site.server.log.add(LoggedStep(20, E1, gradient_of(20), (1.0,)))
    if why == "other bits":
        work.named["w"][7] += 1.0
    at.wait()
    learned = lesson.take(at, work, watch, step=9, held_step=8)
    assert (learned.step, learned.fingerprint) == (9, at.work.fingerprint())
    assert ("learned", 9) in watch.told


@pytest.mark.parametrize("why", ["no log", "another lineage"])
def test_one_that_nobody_waits_for_fails_where_gradients_are_missing(lesson, why):
    at, work, watch = lesson(since=5)
    at.go_on(4)
    for site in at.sites:
        site.server.log.end()
        if why == "another lineage":
            site.server.log.begin(LINEAGE + 1, 5)
    with pytest.raises(StaleQuorum, match="gradients asked for"):
        lesson.take(at, work, watch, step=5, trail=Trail(E1, 5))


def test_a_gradient_that_is_not_the_one_that_was_voted_on_is_not_applied(lesson):
    at, work, watch = lesson(since=5, num_donors=1)
    at.go_on(3)
    (site,) = at.sites
    site.server.log._kept[7].gradient[3] += 1.0
    with pytest.raises(TransferFailed, match="voted on"):
        lesson.take(at, work, watch, step=5, trail=Trail(E1, 5))
    assert work.step == 5


def test_a_donor_that_lags_is_asked_again_or_done_without(lesson):
    at, work, watch = lesson(since=5)
    at.go_on(6)
    at.sites[1].server.log.end()
    learned = lesson.take(at, work, watch, step=5, trail=Trail(E1, 5))
    assert learned.step == 11


def held(work, step):
    for each in range(1, step + 1):
        work.apply(each, gradient_of(each), (1.0,))


def behind_a_trail(lesson):
    """Return donors that keep gradients since 5, and lend what they have had since 9."""
    at, work, watch = lesson(since=5)
    at.go_on(4)
    for site in at.sites:
        site.server.publish(9, at.work.state(), note="1.4", fingerprint=at.work.fingerprint())
    at.go_on(6)
    return at, work, watch


@pytest.mark.parametrize("step", [6, 9])
def test_one_that_holds_a_state_whose_gradients_are_kept_takes_nothing_else(lesson, step):
    at, work, watch = behind_a_trail(lesson)
    held(work, step)
    learned = lesson.take(at, work, watch, step=9, trail=Trail(E1, 9), held_step=step)
    assert learned.fingerprint == work.fingerprint() == at.work.fingerprint()
    assert watch.told == [("caught up", 15, 15 - step)]


@pytest.mark.parametrize("why", ["older than the gradients", "other bits"])
def test_a_state_that_does_not_lead_to_the_trail_is_fetched_and_the_trail_is_followed(lesson, why):
    at, work, watch = behind_a_trail(lesson)
    held(work, 3 if why == "older than the gradients" else 8)
    if why == "other bits":
        work.named["w"][7] += 1.0
    step = work.step
    learned = lesson.take(at, work, watch, step=9, trail=Trail(E1, 9), held_step=step)
    assert learned.fingerprint == work.fingerprint() == at.work.fingerprint()
    assert watch.told == [("learned", 9), ("caught up", 15, 6)]
