"""Links of references that stay good: whom they lead to, and what becomes of messages (A-9)."""

from __future__ import annotations

import asyncio

import pytest

from danaus.actor.failure import Fault
from danaus.actor.following import Followers
from danaus.actor.identity import ProcessRef
from danaus.actor.process_link import ProcessLink
from danaus.actor.process_messages import Deliver, SpawnActor
from danaus.actor.supervision_messages import ProcessName

KILLED = Fault("signal", "its process was ended by SIGKILL", signal="SIGKILL")


class Connections:
    """Notes which links were made, and whom was looked for."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []
        self.looked_for: list[str] = []

    def new_link(self, ref, life):
        self.made.append((ref.process_id, life))
        return ProcessLink(ref, None, lambda link, address: None, life=life)

    def find(self, link, name):
        self.looked_for.append(name.process_id)


class Waiting:
    def __init__(self) -> None:
        self.why = ""

    def gone(self, why, fault) -> None:
        self.why = why


@pytest.fixture
def gone():
    """What is known to have ended."""
    return {}


@pytest.fixture
def connections():
    return Connections()


@pytest.fixture
def followers(connections, gone):
    return Followers(connections, gone.get)


def process(incarnation: int) -> ProcessName:
    return ProcessName("job", f"host/w/0#{incarnation}")


REF = ProcessRef("host/w/0#0", "unix:/agent", "", "job", restarts=True)


def end(followers: Followers, gone: dict, incarnation: int) -> None:
    gone[process(incarnation)] = KILLED
    followers.gone(process(incarnation), KILLED)


def deliver(number: int):
    return lambda call: Deliver(call, "mesh", 0, 0, "sender", number, "work")


def on_a_loop(work) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


def test_one_link_serves_until_its_process_ends_then_the_heir_is_looked_for(
    followers, connections, gone
):
    def work() -> None:
        first = followers.link(REF)
        assert followers.link(REF) is first
        end(followers, gone, 0)
        assert connections.looked_for == ["host/w/0#0"]  # nobody asks for it yet
        assert followers.link(REF) is followers.link(REF) is not first
        end(followers, gone, 1)
        end(followers, gone, 2)
        assert followers.link(REF).ref.process_id == "host/w/0#3"

    on_a_loop(work)
    assert connections.made == [("host/w/0#0", 0), ("host/w/0#1", 1), ("host/w/0#3", 2)]


def test_a_reference_that_is_first_used_after_several_deaths_goes_to_who_lives(
    followers, connections, gone
):
    gone.update({process(0): KILLED, process(1): KILLED})
    on_a_loop(lambda: followers.link(REF))
    assert connections.made == [("host/w/0#2", 1)]


def test_messages_that_were_not_sent_go_to_the_heir_in_order_and_orders_do_not(followers, gone):
    def work() -> None:
        link, spawn, call = followers.link(REF), Waiting(), Waiting()
        link.post(lambda n: SpawnActor(n, "mesh", "a", 0, (), ()), (b"",), spawn)
        for number in (1, 2):
            link.post(deliver(number), (b"",), call if number == 1 else None)
        end(followers, gone, 0)
        assert spawn.why == KILLED.reason
        assert call.why == ""
        heir = followers.link(REF)
        sent = [(message.number, message.incarnation) for message, _ in heir._outbox]
        assert sent == [(1, 1), (2, 1)]
        end(followers, gone, 1)
        assert [message.incarnation for message, _ in followers.link(REF)._outbox] == [2, 2]

    on_a_loop(work)


def test_an_heir_that_never_came_ends_calls_and_is_looked_for_again_later(followers, gone):
    def work() -> None:
        followers.link(REF)
        assert not followers.never_came(process(0))  # that is the end of the process itself
        end(followers, gone, 0)
        call = Waiting()
        heir = followers.link(REF)
        heir.post(deliver(1), (b"",), call)
        assert followers.never_came(process(1))
        assert "was not started again so far" in call.why
        assert followers.link(REF) is heir  # for some seconds calls end at once
        assert heir.fault is None  # it may come yet

    on_a_loop(work)


def test_leaving_a_job_ends_its_links(followers):
    def work() -> None:
        call, link = Waiting(), followers.link(REF)
        link.post(deliver(1), (b"",), call)
        followers.leave("job")
        assert call.why == "this process left the job"
        assert followers.link(REF) is not link

    on_a_loop(work)
