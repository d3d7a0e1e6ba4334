"""One member process that votes, and votes again: how long a commit vote takes.

Usage: ``python -m danaus.app.bench_ft_vote FOLDER ME NUM_MEMBERS BIND NUM_ROUNDS``.  Members find
each other by the addresses that they leave in FOLDER; each says the seconds of its rounds.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from danaus.app.bench_processes import await_words, end_with_input, leave_word, say
from danaus.ft.crew import Crew
from danaus.ft.step_events import Ballot
from danaus.ft.step_plan import StepPlan
from danaus.ft.tally import tally
from danaus.quorum.folder import RunFiles
from danaus.quorum.messages import Announcement, Epoch, MemberId, Outcome, Seat
from danaus.wire.address import Address
from danaus.wire.blocking import PeerListener
from danaus.wire.secret import Secret

_EPOCH = Epoch(1, 1)
_DIGEST = "0123456789abcdef"


def _meet(folder: Path, me: int, *, num_members: int, mine: Address) -> tuple[Seat, ...]:
    """Leave this member's address; return everybody's once all are there."""
    leave_word(folder / f"member-{me}.address", str(mine))
    paths = [folder / f"member-{each}.address" for each in range(num_members)]
    found = await_words(paths, "the other members")
    return tuple(Seat(_member(at), 1, word) for at, word in enumerate(found))


def _member(number: int) -> MemberId:
    return MemberId(f"replica-{number}", 0, 0)


def _vote(crew: Crew, told: Announcement, *, me: MemberId, num_rounds: int) -> list[float]:
    members = told.record().members
    spans: list[float] = []
    for step in range(1, num_rounds + 1):
        ballot = Ballot(me, _EPOCH, step, "prepared", _DIGEST, _DIGEST)
        began = time.perf_counter()
        count = tally(crew.vote(ballot), members, epoch=_EPOCH, step=step)
        spans.append(time.perf_counter() - began)
        assert count.count == "commit", count.reason
    return spans


def main() -> None:
    """Vote; say how long each round took."""
    folder, me, num_members, bind, num_rounds = sys.argv[1:]
    end_with_input()
    torch.set_num_threads(1)
    files = RunFiles(Path(folder))
    secret = Secret.load(files.secret)
    where = files.data_address(f"member-{me}", 0) if bind == "unix" else bind
    listener = PeerListener(Address.parse(where), secret)
    seats = _meet(files.folder, int(me), num_members=int(num_members), mine=listener.address)
    told = Announcement(_EPOCH, seats, (), 0, Outcome(0, "none", "a bench"), "a bench")
    crew = Crew(
        listener,
        secret,
        _member(int(me)),
        plan=StepPlan(1, int(num_members)),
        on_collective=lambda _number: None,
        aborted=lambda _epoch: None,
    )
    crew.form(told)
    say(spans_s=_vote(crew, told, me=_member(int(me)), num_rounds=int(num_rounds)))
    crew.close()
    listener.close()


if __name__ == "__main__":
    main()
