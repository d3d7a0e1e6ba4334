"""What the service shows of itself: the snapshot, and the page and metrics that are made of it."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from danaus.quorum.events import FoundOut
from danaus.quorum.lighthouse_status import LeaseStatus, LighthouseStatus
from danaus.quorum.messages import Finding
from danaus.quorum.metrics import metrics_text
from danaus.quorum.page import page
from danaus.quorum.status import Progress, QuorumStatus

from .quorum_cases import Town


def snapshot(town: Town, **progress: Progress) -> QuorumStatus:
    known = {member: progress[member.replica_id] for member in town.machine._s.roster.processes
             if member.replica_id in progress}  # fmt: skip
    return town.machine.status(town.now, known)


def roles(status: QuorumStatus) -> dict[str, str]:
    return {each.replica: each.role for each in status.processes}


def shown(quorum: QuorumStatus | None, **changes: object) -> LighthouseStatus:
    status = LighthouseStatus(
        turn="leads" if quorum is not None else "stands by",
        address="tcp:10.0.0.1:4600",
        version="0.1.0",
        up_s=12.5,
        num_sessions=3,
        lease=LeaseStatus("me", "tcp:10.0.0.1:4600", 4, 5.0, 3.25, ""),
        quorum=quorum,
        decisions=(),
        counts={"quorum_announced": 2},
    )
    return msgspec.structs.replace(status, **changes)


def test_nothing_is_known_before_anybody_came():
    status = snapshot(Town())
    assert (status.epoch, status.processes, status.waiting) == ("", (), ())


def test_members_steps_and_silence_are_told():
    town = Town()
    town.start("a", "b")
    town.now += 1.5
    status = snapshot(town, a=Progress(7, "reduce"))
    assert status.epoch == "1.1"
    assert (status.num_members, status.num_learners, status.num_asking) == (2, 0, 0)
    a, b = status.processes
    assert (a.step, a.phase, a.silent_s) == (7, "reduce", 1.5)
    assert (b.step, b.phase) == (0, "")


def test_a_change_and_those_who_wait_for_it_are_told_with_reasons():
    town = Town()
    town.start("a", "b")
    town.join(town.peer("c"))
    status = snapshot(town)
    assert roles(status) == {"a": "member", "b": "member", "c": "asks"}
    assert status.change == "c#0 is ready to join"
    (waits,) = status.waiting
    assert "waiting for a, b" in waits or "no member of the last quorum" in waits


def test_learners_and_the_dead_are_told_apart():
    town = Town()
    a, b = town.start("a", "b")
    a.commit(3)
    b.commit(3)
    c = town.peer("c")
    town.join(c, a, b)
    status = snapshot(town)
    assert roles(status) == {"a": "member", "b": "member", "c": "learner"}
    assert status.hold
    town.die(b)
    status = snapshot(town)
    assert roles(status)["b"] == "dead"
    assert "b lost rank 0" in status.change
    (note,) = {each.note for each in status.processes if each.replica == "b"}
    assert note


def test_the_whole_is_json():
    town = Town()
    town.start("a", "b")
    status = shown(snapshot(town))
    again = msgspec.json.decode(msgspec.json.encode(status), type=LighthouseStatus)
    assert again == status


def test_metrics_are_what_prometheus_reads():
    town = Town()
    town.start("a", "b")
    text = metrics_text(shown(snapshot(town, a=Progress(1234567))))
    families = {each.name: each for each in text_string_to_metric_families(text)}
    for name, family in families.items():
        assert name.startswith("danaus_")
        assert family.documentation
        assert family.type in ("gauge", "counter")
    (decisions,) = families["danaus_lighthouse_decisions"].samples
    assert decisions.name == "danaus_lighthouse_decisions_total"
    assert (decisions.labels, decisions.value) == ({"event": "quorum_announced"}, 2.0)
    steps = {s.labels["replica"]: s.value for s in families["danaus_replica_step"].samples}
    assert steps == {"a": 1234567.0, "b": 0.0}
    (term,) = families["danaus_quorum_epoch_term"].samples
    assert term.value == 1.0
    (rest,) = families["danaus_lighthouse_lease_remaining_seconds"].samples
    assert rest.value == 3.25


def test_labels_are_escaped():
    text = metrics_text(shown(None, address='a"b\\c\nd'))
    (info,) = (
        each for each in text_string_to_metric_families(text)
        if each.name == "danaus_lighthouse_info"
    )  # fmt: skip
    assert info.samples[0].labels["address"] == 'a"b\\c\nd'


@pytest.mark.parametrize("word", ["1.1", "member", "tcp:10.0.0.1:4600", "term of the lease"])
def test_the_page_tells_what_a_person_wants(word):
    town = Town()
    town.start("a", "b")
    assert word in page(shown(snapshot(town)))


def test_the_page_escapes_what_it_is_told():
    town = Town()
    town.start("<script>x</script>", "b")
    line = {"at": 1.0, "event": "quorum_waiting", "reason": "<b>&", "told": ["<i>"]}
    text = page(shown(snapshot(town), decisions=(line,)))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "&lt;b&gt;&amp; (told &lt;i&gt;)" in text


def test_a_standby_says_who_leads():
    assert "The leader is tcp:10.0.0.1:4600." in page(shown(None))


def test_who_is_slow_is_shown_and_counted_until_that_is_over():
    town = Town()
    a, b = town.start("a", "b")

    def look(kind: str) -> tuple[list[tuple[bool, str]], str]:
        town.do(FoundOut(Finding(a.member, b.member, kind, 7, "took 2.0 times as long")))
        status = snapshot(town)
        told = [(each.is_slow, each.note) for each in status.processes]
        return told, metrics_text(shown(status))

    told, metrics = look("slow")
    assert told == [(False, ""), (True, "slow: it took 2.0 times as long")]
    assert 'danaus_replica_is_slow{replica="b",rank="0",incarnation="0",role="member"} 1' in metrics
    told, metrics = look("not_slow")
    assert told == [(False, ""), (False, "")]
