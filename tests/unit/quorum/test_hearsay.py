"""A service without its disk knows the last quorum by hearsay: whoever died meanwhile is found out.

Nobody says of a dead member that it is dead but its host agent, and only if it is asked (Q-3).
"""

from __future__ import annotations

from tests.unit.quorum.quorum_cases import Town, names

from danaus.quorum.events import DeathReported, ProbeProcess


def without_disk() -> tuple[Town, list]:
    """Return a town of three whose service has just come back without its disk."""
    town = Town()
    peers = town.start("a", "b", "c")
    for peer in peers:
        peer.commit(3)
    town.log.clear()
    town.restart(saved=None, ledger_steps=3, lost=True)
    return town, peers


def probed(town: Town) -> set[str]:
    return {each.seat.member.replica_id for each in town.all(ProbeProcess)}


def test_who_died_while_the_service_was_away_is_asked_for_at_its_host() -> None:
    town, (a, b, c) = without_disk()
    del town.peers[c.member]
    town.register(a, b)
    assert "c" in probed(town)
    (asked,) = {each.seat for each in town.all(ProbeProcess) if each.seat.member == c.member}
    assert (asked.agent_address, asked.process_id) == (c.seat.agent_address, c.seat.process_id)


def test_its_confirmed_death_lets_the_others_go_on_though_another_took_its_place() -> None:
    town, (a, b, c) = without_disk()
    del town.peers[c.member]
    again = town.peer("c", incarnation=1)
    town.register(a, b, again)
    town.join(again, a, b)
    town.wait(5.0)
    assert "waiting for c" in a.waiting
    town.do(DeathReported(c.member, "ended by SIGKILL"))
    town.wait(1.0)
    assert names(town.last) == ["a", "b"]
