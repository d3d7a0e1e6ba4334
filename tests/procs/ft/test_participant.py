"""``Participant`` where a member of its quorum is not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.procs.ft.loop_parts import network, optimizer_of

from danaus.ft.participant import Participant, StepPlan
from danaus.ft.place import Place
from danaus.ft.plain_work import PlainWork
from danaus.quorum.client import QuorumClient
from danaus.quorum.messages import Seat, StepReport
from danaus.testing.groups import Member, soon
from danaus.wire.secret import Secret

SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture
def folder(tmp_path):
    """The folder of a run whose service waits for two replicas."""
    command = [sys.executable, "-m", "danaus.quorum.service", "--run", str(tmp_path)]
    command += ["--expected-replicas", "2", "--reconnect-limit-s", "0.1"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    service = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    yield tmp_path
    service.communicate(timeout=20.0)


def test_nothing_is_computed_for_a_quorum_whose_group_does_not_form(folder):
    model = network()
    work = PlainWork(model, optimizer_of(model))
    absent, place = Place.in_folder(folder, "a"), Place.in_folder(folder, "b")
    seat = Seat(absent.member, 1, absent.data_address)  # where nobody listens
    with (
        QuorumClient(absent.quorum_address, Secret.load(absent.secret_path), seat) as client,
        Participant(place, work, StepPlan(num_steps=1, num_leaves=4)) as participant,
    ):
        attempts = participant.attempts()

        def first_with_a_leaf():
            return next(each for each in attempts if any(True for _ in each.leaves()))

        first = Member(first_with_a_leaf)
        told = client.join(StepReport(0, work.fingerprint()), soon())
        assert told.replica_ids == ("a", "b")
        client.close()
        assert first.outcome().run == range(4), "it is for those who are there"
        attempts.close()
