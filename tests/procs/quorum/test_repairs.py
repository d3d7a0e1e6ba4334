"""H-3 over real sockets: a process that has lost a sibling goes on under another name."""

from __future__ import annotations

import queue
import signal

import pytest

from danaus.core.errors import ExchangeAborted
from danaus.quorum.messages import Renounce

from .quorum_parts import (
    LIMIT_S,
    FakeAgent,
    Members,
    MemberThread,
    ServiceProcess,
)

RANKS = {"num_ranks": 2, "rejoins": True}


def pair(members: Members, name: str) -> list[MemberThread]:
    return [members.add(name, rank=rank, **RANKS) for rank in (0, 1)]


def next_life(members: Members, old: MemberThread) -> MemberThread:
    """Let a process give its name up and go on under the next."""
    old.client.disband("its replica lost rank 1")
    old.client.tell(Renounce(old.seat.member, "its replica lost rank 1"))
    old.client.close()
    return members.add(
        "b",
        1,
        rank=old.seat.member.rank,
        process_id=old.process_id,
        formerly=(*old.seat.formerly, old.seat.member),
        **RANKS,
    )


@pytest.mark.parametrize("restarts", [False, True], ids=["", "the service dies too"])
def test_a_process_goes_on_under_its_replicas_next_name_and_dies_under_it(
    tmp_path_factory: pytest.TempPathFactory, restarts: bool
) -> None:
    folder = tmp_path_factory.mktemp("q")
    with (
        ServiceProcess(folder, "--expected-replicas", "2") as service,
        FakeAgent(f"unix:{folder}/a", service.secret) as agent,
        Members(service, agent) as members,
    ):
        service.start()
        a, (b0, b1) = pair(members, "a"), pair(members, "b")
        members.form(*a, b0, b1)
        b1.client.close()
        agent.die(b1.process_id)
        if restarts:
            service.end(signal.SIGKILL)
            service.start()
        else:
            assert b0.aborts.get(timeout=LIMIT_S).reason.startswith("b lost rank 1")
        assert members.form(*a).repairs == ("b",)
        new = next_life(members, b0)
        b1 = members.add("b", 1, rank=1, **RANKS)
        new.ask()
        b1.ask()
        while "b#1 is ready to join" not in a[0].changes.get(timeout=LIMIT_S).reason:
            pass  # what it was told of the death comes first
        told = members.form(*a)
        assert {str(seat.member) for seat in told.members} >= {"b/0#1", "b/1#1"}
        with pytest.raises(queue.Empty):
            agent.killed.get_nowait()
        agent.die(b0.process_id)
        while "b lost rank 0" not in a[0].aborts.get(timeout=LIMIT_S).reason:
            pass  # what it was told of rank 1 comes first
        deaths = [(line["rank"], line["incarnation"]) for line in service.lines("quorum_death")]
        # A service that is killed as it says so has the next one say it again.
        assert [*dict.fromkeys(deaths)] == [(1, 0), (0, 1)], "the name given up has not died"


def test_who_asks_under_a_name_that_is_to_be_given_up_is_told_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        ServiceProcess(tmp_path_factory.mktemp("q")) as service,
        Members(service) as members,
    ):
        service.start()
        alone = members.add("b", **RANKS)
        alone.ask()
        alone.client.disband("its replica lost rank 1")
        answer = alone.answers.get(timeout=LIMIT_S)
        assert isinstance(answer, ExchangeAborted)
        assert "lost rank 1" in str(answer)
