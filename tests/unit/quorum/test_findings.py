"""What members find out about one of them, and what the service makes of it."""

from __future__ import annotations

from danaus.quorum.events import DeathReported, Fence, FoundOut, NoteFinding, QuorumSettings
from danaus.quorum.messages import Finding

from .quorum_cases import Town, names


def test_who_is_slow_is_written_down_once_and_when_it_is_over() -> None:
    town = Town()
    a, b, _ = town.start("a", "b", "c")

    def noted(kind: str) -> list[str]:
        found = Finding(a.member, b.member, kind, 7, "took 2.0 times as long")
        return [o.finding.kind for o in town.do(FoundOut(found)) if isinstance(o, NoteFinding)]

    assert noted("not_slow") == []
    assert [noted("slow"), noted("slow")] == [["slow"], []]
    assert [noted("not_slow"), noted("not_slow")] == [["not_slow"], []]
    assert a.pending == b.pending == ""


def test_who_stays_slow_makes_room_at_a_boundary_where_that_is_asked_for() -> None:
    town = Town(QuorumSettings(replace_stragglers=True))
    a, b, c = town.start("a", "b", "c")
    town.do(FoundOut(Finding(a.member, b.member, "slow", 7, "took 2.0 times as long")))
    assert a.pending == c.pending == "b is replaced: it took 2.0 times as long"
    assert not [o for o in town.join(a, b, c) if isinstance(o, Fence)]
    assert names(a.told) == ["a", "c"]
    assert b.refused is not None
    assert b.refused.reason == "b/0#0 is replaced: it took 2.0 times as long"


def test_who_computes_wrongly_ends_and_the_others_go_on() -> None:
    town = Town()
    a, b, c = town.start("a", "b", "c")
    found = Finding(a.member, b.member, "miscomputes", 7, "leaf 1 comes out as x at b, y at a, c")
    assert [o for o in town.do(FoundOut(found)) if isinstance(o, NoteFinding)]
    assert not [o for o in town.do(FoundOut(found)) if isinstance(o, NoteFinding)]
    town.join(a, b, c)
    assert names(a.told) == ["a", "c"]
    assert b.refused is not None
    assert b.refused.reason.startswith("b/0#0 computes wrongly: leaf 1")


def test_it_is_written_down_of_one_that_has_ended_by_then_too() -> None:
    town = Town()
    a, b, _ = town.start("a", "b", "c")
    town.do(DeathReported(b.member, "exited with code 1"))
    found = Finding(a.member, b.member, "miscomputes", 7, "leaf 1 comes out as x at b, y at a, c")
    assert [o for o in town.do(FoundOut(found)) if isinstance(o, NoteFinding)]
    slow = Finding(a.member, b.member, "slow", 7, "took 2.0 times as long")
    assert not town.do(FoundOut(slow))[:-1]


def test_who_stays_slow_is_told_at_once_where_it_has_asked_already() -> None:
    town = Town(QuorumSettings(replace_stragglers=True))
    a, b, c = town.start("a", "b", "c")
    town.join(b)
    town.do(FoundOut(Finding(a.member, b.member, "slow", 7, "took 2.0 times as long")))
    assert b.refused is not None, "it would wait for a quorum that will not hold it"
    town.join(a, c)
    assert names(a.told) == ["a", "c"]


def test_who_is_to_make_room_is_waited_for_until_it_has_asked() -> None:
    town = Town(QuorumSettings(replace_stragglers=True))
    a, b, c = town.start("a", "b", "c")
    before = town.last.epoch
    town.do(FoundOut(Finding(a.member, b.member, "slow", 7, "took 2.0 times as long")))
    town.join(a, c)
    assert town.last.epoch == before, "b is neither fenced nor has it promised anything"
    town.join(b)
    assert names(a.told) == ["a", "c"]
