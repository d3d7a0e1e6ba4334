"""What the machine tells the judge of progress about one that waits (P-3)."""

from __future__ import annotations

import pytest

from danaus.quorum.events import QuorumSettings
from danaus.quorum.messages import MemberId

from .quorum_cases import Town


def test_what_is_known_of_one_that_waits_tells_when_it_was_heard_and_answered() -> None:
    town = Town(QuorumSettings(expected_replicas=2))
    a, b = town.peer("a"), town.peer("b")
    town.register(a, b)
    town.join(a)
    town.wait(1.0)
    quiet = town.machine.quiet(a.member, town.now)
    assert quiet is not None
    assert quiet.answered_s is None
    town.join(b)
    town.wait(1.0)
    quiet = town.machine.quiet(a.member, town.now)
    assert quiet is not None
    assert quiet.answered_s == pytest.approx(1.0)
    town.join(a)
    quiet = town.machine.quiet(a.member, town.now)
    assert quiet is not None
    assert quiet.answered_s is None
    assert town.machine.quiet(MemberId("z", 0, 0), town.now) is None
