"""Whom a member dials when the service may be in several places."""

from __future__ import annotations

import pytest

from danaus.core.errors import AddressRefused
from danaus.quorum.candidates import Candidates, parse_candidates

TEXT = "tcp:a:1,tcp:b:2, tcp:c:3"


def test_addresses_stand_between_commas():
    assert [str(each) for each in parse_candidates(TEXT)] == ["tcp:a:1", "tcp:b:2", "tcp:c:3"]
    assert str(Candidates(parse_candidates(TEXT))) == "tcp:a:1,tcp:b:2,tcp:c:3"


@pytest.mark.parametrize("text", ["", " , ", "tcp:a:1,nonsense"])
def test_what_names_no_service_is_refused(text):
    with pytest.raises(AddressRefused):
        parse_candidates(text)


def test_each_is_tried_in_turn_and_the_one_that_is_said_to_lead_before_others():
    known = Candidates(parse_candidates(TEXT))
    seen = []
    for holder in ("", "", "", "tcp:c:3", "tcp:c:3", "tcp:elsewhere:9"):
        seen.append(str(known.current))
        known.turn(holder)
    assert seen == ["tcp:a:1", "tcp:b:2", "tcp:c:3", "tcp:a:1", "tcp:c:3", "tcp:a:1"]


def test_one_alone_is_tried_again():
    known = Candidates(parse_candidates("unix:/s"))
    known.turn("unix:/s")
    assert str(known.current) == "unix:/s"
