"""H-1: a learner waits for its donors only while the epoch stands in which it was told to learn."""

import contextlib

import pytest
from tests.procs.ft.loop_parts import network, optimizer_of
from tests.procs.ft.transfer_parts import empty_like, fetch, same

from danaus.core.errors import StaleQuorum
from danaus.ft import step_events as on
from danaus.ft.healing import Healer
from danaus.ft.observer import Observer
from danaus.ft.participant import Participant
from danaus.ft.place import Place
from danaus.ft.plain_work import PlainWork
from danaus.ft.step_plan import StepPlan
from danaus.quorum.messages import Epoch, Learner, MemberId, Seat
from danaus.testing.groups import Member, soon
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

OLDER, NOW = Epoch(1, 3), Epoch(1, 4)


@pytest.fixture
def learning(donors, secret, tmp_path):
    """Return a function that learns from a donor that serves nothing, and its healer."""
    (donor,) = donors(1)
    learner = Seat(MemberId("b", 0, 1), 1, "unix:/b")
    order = on.Learn(NOW, 5, Learner(learner, (Seat(MemberId("a", 0, 0), 1, str(donor.address)),)))
    model = network()
    work = PlainWork(model, optimizer_of(model))
    with contextlib.ExitStack() as stack:

        def make(ended=None):
            listener = PeerListener(Address.unix(tmp_path / "learner"), secret)
            stack.callback(listener.close)
            healer = Healer(
                listener, secret, work, observer=Observer(), aborted=lambda _epoch: ended
            )
            stack.callback(healer.close)
            return lambda: healer.learn(order), healer

        yield make


def test_an_abort_ends_a_transfer_of_its_epoch(learning):
    learn, healer = learning()
    learner = Member(learn)
    healer.abort(OLDER, "an epoch before")
    assert not learner.ended_within(0.1)
    healer.abort(NOW, "nobody waits any longer")
    assert learner.outcome() == on.Aborted(NOW, "nobody waits any longer")


def test_who_goes_back_to_another_state_serves_its_own_no_longer(tmp_path):
    place = Place.in_folder(tmp_path, "a")
    model = network()
    work = PlainWork(model, optimizer_of(model))
    donor = {"a": Address.parse(place.data_address)}
    secret = Secret.load(place.secret_path)
    with Participant(place, work, StepPlan(num_steps=1, num_leaves=1)) as participant:
        participant._serve(on.Serve(NOW, 0, (), None))
        into = empty_like(work.state())
        fetch(donor, secret, 0, into=into, deadline=soon())
        assert same(into, work.state())
        participant._restore(on.Restore(NOW, 0, "all were dead"))
        with pytest.raises(StaleQuorum):
            fetch(donor, secret, 0, into=into, deadline=soon())


def test_an_abort_that_came_before_the_transfer_ends_it_too(learning):
    learn, _ = learning(ended="a/0#0 is dead")
    assert learn() == on.Aborted(NOW, "a/0#0 is dead")
