"""The last decisions, as the service's page shows them."""

from __future__ import annotations

from danaus.core.journal import Journal, read
from danaus.quorum.events import Abort, NotifyPending
from danaus.quorum.messages import AbortExchange, ChangePending, Epoch
from danaus.quorum.minutes import KEPT, Minutes

from .quorum_cases import seat


def pending(reason: str, name: str = "a") -> NotifyPending:
    return NotifyPending((seat(name).member,), ChangePending(Epoch(1, 1), reason))


def test_a_reminder_is_written_once_for_each_and_shown_once():
    minutes = Minutes(None)
    for name in "aabb":
        minutes.decided(pending("c is ready to join", name))
    minutes.decided(pending("d is ready to join"))
    assert [line["reason"] for line in minutes.recent] == [
        "c is ready to join", "d is ready to join",
    ]  # fmt: skip
    assert minutes.counts["quorum_change_pending"] == 3
    minutes.decided(pending("c is ready to join", "b"))
    assert minutes.counts["quorum_change_pending"] == 3
    later = NotifyPending((seat("b").member,), ChangePending(Epoch(1, 2), "c is ready to join"))
    minutes.decided(later)
    assert minutes.counts["quorum_change_pending"] == 4


def test_who_must_leave_an_exchange_is_named_once(tmp_path):
    path = tmp_path / "journal"
    journal = Journal(path)
    minutes = Minutes(journal)
    a, b = seat("a").member, seat("b").member
    for members in ((a,), (a, b), (b,), (a, b)):
        minutes.decided(Abort(members, AbortExchange(Epoch(1, 1), (), "c is dead")))
    minutes.decided(Abort((a,), AbortExchange(Epoch(1, 1), (), "d is dead")))
    journal.close()
    told = [(line["reason"], line["told"]) for line in read(path)]
    assert told == [
        ("c is dead", ["a/0#0"]),
        ("c is dead", ["b/0#0"]),
        ("d is dead", ["a/0#0"]),
    ]


def test_no_more_than_so_many_are_kept():
    minutes = Minutes(None)
    for number in range(KEPT + 5):
        minutes.note("storm_noticed", reason=str(number))
    assert len(minutes.recent) == KEPT
    assert minutes.recent[-1]["reason"] == str(KEPT + 4)
