"""The last decisions, as the service's page shows them."""

from __future__ import annotations

from danaus.quorum.events import NotifyPending
from danaus.quorum.messages import ChangePending, Epoch
from danaus.quorum.minutes import KEPT, Minutes

from .quorum_cases import seat


def pending(reason: str, name: str = "a") -> NotifyPending:
    return NotifyPending((seat(name).member,), ChangePending(Epoch(1, 1), reason))


def test_a_reminder_is_counted_and_shown_once():
    minutes = Minutes(None)
    for name in "aabb":
        minutes.decided(pending("c is ready to join", name))
    minutes.decided(pending("d is ready to join"))
    assert [line["reason"] for line in minutes.recent] == [
        "c is ready to join", "d is ready to join",
    ]  # fmt: skip
    assert minutes.counts["quorum_change_pending"] == 5


def test_no_more_than_so_many_are_kept():
    minutes = Minutes(None)
    for number in range(KEPT + 5):
        minutes.note("storm_noticed", reason=str(number))
    assert len(minutes.recent) == KEPT
    assert minutes.recent[-1]["reason"] == str(KEPT + 4)
