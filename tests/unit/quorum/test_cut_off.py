"""Members whose host has ended, and a service that is cut off from everybody."""

from __future__ import annotations

import msgspec
import pytest

from danaus.quorum.events import (
    Beaten,
    Disconnected,
    Fence,
    HostGone,
    ListenerGone,
    QuorumSettings,
    Unreachable,
)
from danaus.quorum.messages import Epoch

from .quorum_cases import Town, names


def test_a_service_that_was_cut_off_from_everybody_fences_nobody_once_it_hears_again() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    town.wait(0.5, silent=(a,))  # the last words of each went at another moment
    said = town.wait(30.0, silent=(a, b, c))
    assert not [each for each in said if isinstance(each, Fence)]
    said = town.wait(4.0, silent=(b, c))
    assert not [each for each in said if isinstance(each, Fence)], "they are about to be heard too"
    assert {f.seat.member for f in town.wait(4.0, silent=(c,)) if isinstance(f, Fence)} == {
        c.member
    }
    assert town.last.epoch == Epoch(1, 1)


def test_who_joins_while_nobody_else_is_heard_for_certain_leaves_nobody_behind_unfenced() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.wait(0.5, silent=(b,))  # b's last words were a little earlier
    town.join(a)
    said = town.wait(30.0, silent=(a, b))
    assert town.last.epoch == Epoch(1, 1), "neither without b nor with it"
    said += town.wait(6.0, silent=(b,))
    (fence,) = [each for each in said if isinstance(each, Fence)]
    assert fence.seat.member == b.member


def test_a_service_that_was_cut_off_from_everybody_waits_anew_for_those_who_ask() -> None:
    """One had asked before the cut: its wait is not the others' delay."""
    town = Town(QuorumSettings(join_limit_s=15.0))
    a, b, c = town.start("a", "b", "c")
    d = town.peer("d")
    town.register(d)
    town.join(d)
    town.wait(20.0, silent=(a, b, c, d))
    town.join(a)
    town.wait(1.0, silent=(b, c))
    assert a.asking
    town.join(b, c)
    assert names(town.last) == ["a", "b", "c", "d"]


def test_a_process_whose_host_agent_has_ended_has_a_second_to_come_back() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    town.do(Disconnected(c.member))
    town.do(HostGone(c.member))
    town.join(a, b)
    town.wait(0.75, silent=(c,))
    assert a.asking
    (fence,) = [said for said in town.wait(0.5, silent=(c,)) if isinstance(said, Fence)]
    assert (fence.seat.member, fence.reason) == (c.member, "its connection closed 1.2 s ago")
    town.do(Unreachable(c.member, f"{fence.reason}; its host agent has ended"))
    assert names(town.last) == ["a", "b"]


@pytest.mark.parametrize("has_agent", [True, False])
def test_a_process_whose_machine_refuses_where_it_listened_is_not_waited_for(has_agent) -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    if not has_agent:
        c.seat = msgspec.structs.replace(c.seat, agent_address="")
        town.register(c)
    town.do(Disconnected(c.member))
    if has_agent:
        town.do(HostGone(c.member))
    town.join(a, b)
    assert a.asking
    (fence,) = [said for said in town.do(ListenerGone(c.member)) if isinstance(said, Fence)]
    assert fence.reason == "its connection closed 0.0 s ago"
    town.do(Unreachable(c.member, f"{fence.reason}; no host agent can kill it"))
    assert names(town.last) == ["a", "b"]


def test_a_process_that_was_heard_since_is_not_silent_whatever_its_machine_said() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    town.do(Disconnected(c.member))
    town.do(Beaten(c.member, Epoch(1, 1)))
    assert not [said for said in town.do(ListenerGone(c.member)) if isinstance(said, Fence)]
    town.join(a, b, c)
    assert names(town.last) == ["a", "b", "c"]


def test_a_process_that_is_heard_after_its_host_agent_ended_is_not_given_up() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    town.do(HostGone(c.member))
    town.wait(3.0)
    town.join(a, b, c)
    assert names(town.last) == ["a", "b", "c"]
