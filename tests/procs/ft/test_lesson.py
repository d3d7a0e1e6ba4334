"""How a learner comes to the members' state over real sockets: all of it, or step by step."""

from __future__ import annotations

import pytest
import torch

from danaus.collectives.fingerprint import digest, fingerprint
from danaus.core.errors import StaleQuorum, TransferFailed
from danaus.ft.lesson import Lesson
from danaus.ft.observer import Observer
from danaus.ft.step_events import Learn
from danaus.ft.step_log import LoggedStep
from danaus.ft.transfer import Fetch
from danaus.quorum.messages import Epoch, Learner, MemberId, Seat, Trail
from danaus.testing.groups import soon
from danaus.wire.position import Phase

LINEAGE, NUM_ELEMENTS = 2, 1000
E1 = Epoch(1, 4)
SEAT = Seat(MemberId("c", 0, 1), 1, "unix:/c")
DONOR = Seat(MemberId("a", 0, 0), 1, "unix:/a")


def gradient_of(step):
    return torch.linspace(-1.0, 1.0, NUM_ELEMENTS) / step


class Work:
    """A state that is the sum of all that was applied to it, and mixes each in."""

    num_gradient_elements = NUM_ELEMENTS
    replays = True

    def __init__(self, step=0):
        self.named = {"w": torch.zeros(NUM_ELEMENTS), "step": torch.zeros(1, dtype=torch.int64)}
        for each in range(1, step + 1):
            self.apply(each, gradient_of(each), (1.0,))

    @property
    def step(self):
        return int(self.named["step"])

    def apply(self, step, flat, measures):
        assert step == self.step + 1
        self.named["w"].mul_(0.9).add_(flat.mul_(measures[0]))  # it changes the gradient too
        self.named["step"].fill_(step)

    def state(self):
        return self.named

    def loaded(self, step):
        assert step == self.step

    def fingerprint(self):
        return fingerprint(self.named)


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


class Donors:
    """Donors that stand at a step, and lend what they did since ``since``."""

    def __init__(self, sites, since):
        self.sites, self.work = sites, Work(since)
        for site in sites:
            site.server.publish(since, self.work.state(), note="1.3")
            site.server.log.begin(LINEAGE, since)

    def go_on(self, num_steps=1):
        for _ in range(num_steps):
            step = self.work.step + 1
            live = LoggedStep(step, E1, gradient_of(step), (1.0,), digest(gradient_of(step)))
            copies = [site.server.log.copy(live) for site in self.sites]
            self.work.apply(step, live.gradient, live.measures)
            for site, copy in zip(self.sites, copies, strict=True):
                site.server.add(copy)

    def wait(self, fingerprint_told=None):
        """Stand at a boundary, for a learner that is waited for."""
        for site in self.sites:
            told = self.work.fingerprint() if fingerprint_told is None else fingerprint_told
            step, state = self.work.step, self.work.state()
            site.server.publish(step, state, note="1.4", fingerprint=told, copied=False)


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
