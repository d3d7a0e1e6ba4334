"""The lease machine alone: who leads when, by clocks that agree on nothing."""

from __future__ import annotations

import pytest

from danaus.quorum.lease import HOLDER_SHARE, STANDBY_SHARE, LeaseMachine
from danaus.quorum.lease_events import (
    Candidate,
    DiskHolds,
    Entry,
    Event,
    Follow,
    Instruction,
    Lead,
    LeaseRecord,
    Look,
    Looked,
    Resigned,
    StoreFailed,
    Swap,
    Swapped,
    TermWanted,
    TimeCame,
    WakeAt,
)

LEASE_S = 10.0


class Store:
    """A store in memory, and how an order of the machine is carried out on it."""

    def __init__(self, record: LeaseRecord | None = None) -> None:
        self.record, self.version = record, 0

    def entry(self) -> Entry:
        return Entry(self.record, str(self.version))

    def do(self, order: Swap) -> Swapped:
        if order.version != str(self.version):
            return Swapped(None)
        self.record, self.version = order.record, self.version + 1
        return Swapped(self.entry())


class Runner:
    """One candidate whose orders are carried out at once, or not at all while ``cut``."""

    def __init__(self, store: Store, name: str = "a", disk: str = "d", **more: bool) -> None:
        me = Candidate(name, f"unix:/{name}", disk, f"p-{name}", LEASE_S, **more)
        self.machine, self.store = LeaseMachine(me), store
        self.cut = self.dead = False
        self.said: list[Instruction] = []

    def take(self, event: Event, now: float) -> list[Instruction]:
        """Handle an event and all that follows at the same moment; return what was said."""
        self.said, todo = [], [event]
        while todo:
            for order in self.machine.handle(todo.pop(0), now):
                if isinstance(order, Look | Swap) and self.cut:
                    todo.append(StoreFailed("cut"))
                    break
                if isinstance(order, Look):
                    todo.append(Looked(self.store.entry(), self.dead))
                elif isinstance(order, Swap):
                    todo.append(self.store.do(order))
                else:
                    self.said.append(order)
        return self.said

    def at(self, now: float) -> list[Instruction]:
        return self.take(TimeCame(), now)

    def leads(self) -> Lead | None:
        return next((each for each in self.said if isinstance(each, Lead)), None)


@pytest.fixture
def store() -> Store:
    return Store()


def test_the_first_leads_at_once_in_the_first_term(store):
    a = Runner(store)
    a.at(0.0)
    assert a.leads() == Lead(1, trusts_disk=True)
    assert store.record is not None
    assert (store.record.holder, store.record.term, store.record.disk) == ("a", 1, "d")


def test_it_renews_long_before_its_time_and_wakes_for_it(store):
    a = Runner(store)
    (*_, wake) = a.at(0.0)
    assert wake == WakeAt(0.2 * LEASE_S)
    a.at(wake.at)
    assert store.version == 2
    assert a.machine.certain_until == wake.at + HOLDER_SHARE * LEASE_S


def test_one_that_cannot_renew_is_not_certain_and_then_leads_no_more(store):
    a = Runner(store)
    a.at(0.0)
    a.cut = True
    a.at(2.0)
    assert a.machine.is_certain(7.99)
    assert not a.machine.is_certain(8.01)
    assert a.machine.leading, "it may still be sure again"
    (follow, *_) = a.at(10.0)
    assert isinstance(follow, Follow)
    assert "not renewed for 10.0 s" in follow.reason


def test_one_that_can_renew_in_time_goes_on_as_if_nothing_had_been(store):
    a = Runner(store)
    a.at(0.0)
    a.cut = True
    a.at(2.0)
    a.cut = False
    a.at(9.0)
    assert a.machine.is_certain(9.0)
    assert a.leads() is None


def test_a_standby_waits_for_the_whole_lease_by_its_own_clock(store):
    a, b = Runner(store), Runner(store, "b")
    a.at(0.0)
    b.at(100.0)
    b.at(100.0 + STANDBY_SHARE * LEASE_S - 0.01)
    assert not b.machine.leading
    b.at(100.0 + STANDBY_SHARE * LEASE_S)
    assert b.leads() == Lead(2, trusts_disk=True)
    (follow, *_) = a.at(200.0)
    assert isinstance(follow, Follow)
    assert a.machine.is_certain(200.0) is False


def test_whoever_renews_is_never_followed(store):
    a, b = Runner(store), Runner(store, "b")
    for tick in range(100):
        a.at(float(tick))
        b.at(float(tick))
    assert a.machine.leading
    assert not b.machine.leading


def test_a_renewal_just_before_the_claim_lets_it_fail(store):
    a, b = Runner(store), Runner(store, "b")
    a.at(0.0)
    b.at(0.0)
    b.cut = True  # it does not see what follows
    b.at(3.0)
    a.at(5.0)
    b.cut = False
    b.at(11.0)
    assert not b.machine.leading
    assert b.machine.record == store.record


def test_what_is_given_back_is_taken_at_once(store):
    a, b = Runner(store), Runner(store, "b")
    a.at(0.0)
    b.at(0.0)
    a.take(Resigned(), 1.0)
    assert a.machine.is_settled
    b.at(2.0)
    assert b.leads() == Lead(2, trusts_disk=True)


def test_a_holder_that_its_machine_knows_to_be_dead_is_followed_at_once(store):
    a, b = Runner(store), Runner(store, "b")
    a.at(0.0)
    b.at(0.5)
    b.dead = True
    b.at(2.5)
    assert b.machine.leading


def test_a_disk_is_trusted_only_where_the_last_state_is_on_it(store):
    a, b = Runner(store, "a", "here"), Runner(store, "b", "there")
    a.at(0.0)
    b.at(0.0)
    b.at(11.0)
    assert b.leads() == Lead(2, trusts_disk=False)
    assert store.record is not None
    assert store.record.disk == "", "it has saved nothing yet: were it to die, nobody has it"
    b.take(DiskHolds(), 11.1)
    assert store.record.disk == "there"
    a.at(11.2)
    a.at(30.0)
    assert a.leads() == Lead(3, trusts_disk=False)


def test_a_term_is_in_the_lease_before_anything_is_announced_in_it(store):
    a = Runner(store)
    a.at(0.0)
    assert a.machine.covers(1)
    assert not a.machine.covers(4)
    a.take(TermWanted(4), 0.1)
    assert a.machine.covers(5), "the service uses no epoch twice, so that it tries in the next"
    assert store.record is not None
    assert store.record.term == 5


def test_a_write_that_was_given_up_and_came_to_pass_counts_from_when_it_was_asked_for(store):
    a = Runner(store)
    a.at(0.0)
    (renewal,) = [each for each in a.machine.handle(TimeCame(), 2.0) if isinstance(each, Swap)]
    store.do(renewal)  # and its answer is lost
    a.machine.handle(StoreFailed("no answer"), 6.0)
    a.machine.handle(TimeCame(), 6.5)
    a.machine.handle(Swapped(a.store.do(renewal).entry), 6.6)
    a.machine.handle(Looked(store.entry()), 6.7)
    assert a.machine.certain_until == 2.0 + HOLDER_SHARE * LEASE_S


def test_a_late_renewal_of_a_time_that_is_over_begins_nothing(store):
    a = Runner(store)
    a.at(0.0)
    (renewal,) = [each for each in a.machine.handle(TimeCame(), 2.0) if isinstance(each, Swap)]
    a.cut = True
    a.take(StoreFailed("no answer"), 9.0)
    a.at(10.0)
    assert not a.machine.leading
    store.do(renewal)
    a.cut = False
    a.at(10.6)
    assert a.leads() == Lead(2, trusts_disk=True), "what it led under is spent"


def test_a_patient_one_leaves_a_new_lease_to_others_for_a_while(store):
    b = Runner(store, "b", patient=True)
    b.at(0.0)
    assert not b.machine.leading
    b.at(STANDBY_SHARE * LEASE_S)
    assert b.machine.leading


def test_a_record_that_somebody_took_away_is_waited_for_as_one_that_stands(store):
    a, b = Runner(store), Runner(store, "b")
    a.at(0.0)
    b.at(0.0)
    store.record, store.version = None, 9
    b.at(3.0)
    assert not b.machine.leading
    b.at(3.0 + STANDBY_SHARE * LEASE_S)
    assert b.machine.leading


def test_a_standby_says_whom_it_follows_once(store):
    a, b = Runner(store), Runner(store, "b")
    a.at(0.0)
    assert Follow("unix:/a", "unix:/a leads") in b.at(0.0)
    a.at(2.0)
    assert not [each for each in b.at(2.5) if isinstance(each, Follow)]


def test_one_that_was_stopped_for_long_is_not_certain_when_it_goes_on(store):
    a, b = Runner(store), Runner(store, "b")
    a.at(0.0)
    b.at(0.0)
    b.at(12.0)
    assert b.machine.leading
    assert not a.machine.is_certain(12.5)
    (follow, *_) = a.at(12.5)
    assert isinstance(follow, Follow)
