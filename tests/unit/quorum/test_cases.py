"""The cases of ``cases/quorum.json`` and ``cases/recovery.json``, one test each."""

from __future__ import annotations

from typing import Any

import pytest

from danaus.quorum.agreement import Place, agree
from danaus.quorum.decision import ReplicaView, View, decide
from danaus.quorum.donors import plan_healing
from danaus.quorum.events import Announce, QuorumSettings, RebuildAsked, Refuse
from danaus.quorum.messages import Epoch, MemberId, OpenStep, QuorumRecord, StepReport
from danaus.quorum.resolve import resolve

from .quorum_cases import Peer, Town, load, names, record

QUORUM = load("quorum.json")
RECOVERY = load("recovery.json")


def by_name(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", cases, ids=[case["name"] for case in cases])


# -- decide -----------------------------------------------------------------------------------


def replica_view(facts: dict[str, Any]) -> ReplicaView:
    return ReplicaView(
        joined_at=facts.get("joined"),
        beat_at=facts["beat"],
        dead="reported_dead" in facts,
        shrink_only=facts.get("shrink_only", False),
        place=Place(facts.get("committed_step", 0)),
    )


@by_name(QUORUM["cases"])
def test_decision(case: dict[str, Any]) -> None:
    replicas = {name: replica_view(facts) for name, facts in case["replicas"].items()}
    settings = QuorumSettings(
        min_replicas=case["min_replicas"], join_limit_s=case["join_limit_s"], heartbeat_limit_s=5
    )
    previous = {name: replicas.get(name, ReplicaView()) for name in case.get("previous", [])}
    decision = decide(View(settings, replicas, previous), 0.0)
    expect = case["expect"]
    assert (None if decision.members is None else list(decision.members)) == expect["members"]
    assert expect.get("reason", "") in decision.reason
    assert decision.reason
    if "learners" in expect:
        assert list(decision.learners) == expect["learners"]
    if "fast" in expect:
        assert decision.fast == expect["fast"]


# -- sequences --------------------------------------------------------------------------------


class Sequence:
    """Runs one sequence: in each step its members begin a step of training.

    As Q-2 says, they turn to the service only if they have no quorum, their last step failed or a
    change is pending; otherwise the quorum stands and they take the next step in it.
    """

    def __init__(self, case: dict[str, Any]) -> None:
        self.town = Town(QuorumSettings(min_replicas=case.get("min_replicas", 1)))
        self.members: list[list[str] | None] = []
        self.epochs: list[Epoch] = []

    def restart(self, step: dict[str, Any]) -> None:
        steps = step.get("ledger_steps", 10)
        self.town = Town(self.town.settings, saved=None, ledger_steps=steps)
        for name, term in step.get("seen_term", {}).items():
            last = record(term, 7, *step["last_quorum"])
            self.town.peer(name).become(
                seen_term=term, last_quorum=last, committed_step=steps, fingerprint="f"
            )

    def step(self, step: Any) -> None:
        facts = step if isinstance(step, dict) else {"members": step}
        peers = [self.town.peer(name) for name in facts["members"]]
        self.town.register(*peers)
        if "new_address" in facts:
            peer = self.town.peer(facts["new_address"])
            peer.seat = type(peer.seat)(peer.member, 1, "unix:/elsewhere")
            self.town.register(peer)
        waiting = [self.town.peer(name) for name in facts.get("waiting", [])]
        self.town.register(*waiting)
        self.town.join(*waiting)
        self.town.wait(1.0)
        failed = set(facts.get("commit_failures", {}))
        for peer in peers:
            if peer.told is None or failed or peer.pending or peer.aborted:
                shrink = facts.get("shrink_only") == peer.member.replica_id
                if not peer.asking:
                    self.town.join(peer, shrink_only=shrink)
        self.town.wait(6.0)
        self._note(peers)

    def _note(self, peers: list[Peer]) -> None:
        told = peers[0].told
        if told is None or peers[0].asking:
            self.members.append(None)
            return
        assert all(peer.told == told for peer in peers), "Q-2: the same to each"
        self.members.append(names(told))
        self.epochs.append(told.epoch)


@by_name(QUORUM["sequences"])
def test_sequence(case: dict[str, Any]) -> None:
    run = Sequence(case)
    for step in case["steps"]:
        if isinstance(step, dict) and "restart" in step:
            run.restart(step)
        else:
            run.step(step)
    if "expect_epochs" in case:
        assert [epoch.n for epoch in run.epochs] == case["expect_epochs"]
    if "expect_term" in case:
        assert run.epochs[-1].term == case["expect_term"]
    if "expect_members" in case:
        assert run.members == case["expect_members"]
    if "reason" in case:
        said = [peer.waiting for peer in run.town.peers.values()]
        refused = run.town.all(Refuse)
        said += [f"refuses: {refuse.message.to_do}" for refuse in refused]
        assert any(case["reason"] in reason for reason in said)
        assert not run.town.all(Announce)


def test_a_group_is_rebuilt_in_a_new_epoch() -> None:
    town = Town()
    a, b = town.start("a", "b")
    town.do(RebuildAsked("all stand at one position"))
    assert a.aborted == b.aborted == "all stand at one position"
    town.join(a, b)
    assert town.last.epoch == Epoch(1, 2)
    assert names(town.last) == ["a", "b"]


# -- resolve ----------------------------------------------------------------------------------

EPOCH = Epoch(1, 4)
STEP = 7


def step_report(word: str) -> StepReport | None:
    """Return what a member says that stands as ``word`` says, None if it says nothing."""
    before = StepReport(STEP - 1, "f6", committed_epoch=EPOCH)
    if word == "d":
        return None
    if word == "c":
        return StepReport(STEP, "f7", committed_epoch=EPOCH)
    vote = {"p": "prepared", "r": "refused", "n": "none"}[word[0]]
    kept = OpenStep(
        STEP,
        EPOCH,
        vote,  # type: ignore[arg-type]
        digest=("other" if "other digest" in word else "one") if vote == "prepared" else "",
        refused_seen="seen" in word,
    )
    return StepReport(before.committed_step, "f6", committed_epoch=EPOCH, open_step=kept)


@pytest.mark.parametrize("case", QUORUM["resolve"]["cases"], ids=lambda c: str(c["members"]))
def test_resolve(case: dict[str, Any]) -> None:
    words = {MemberId(name, 0, 0): word for name, word in case["members"].items()}
    reports = {m: report for m, word in words.items() if (report := step_report(word))}
    outcome = resolve(QuorumRecord(EPOCH, tuple(words)), reports)
    verdict, _, noted = case["outcome"].partition(", ")
    assert (outcome.step, outcome.verdict) == (STEP, verdict)
    assert outcome.epoch == EPOCH
    assert outcome.reason
    assert ("divergence" in outcome.reason) == bool(noted)


# -- recovery ---------------------------------------------------------------------------------


@by_name(RECOVERY["cases"])
def test_healing(case: dict[str, Any]) -> None:
    prints = case.get("fingerprints", {})
    places = {
        name: Place(step, 0, (prints[name],) if name in prints else ())
        for name, step in case["steps"].items()
    }
    for rank in [int(word) for word in str(case["rank"]).replace(" and ", " ").split()]:
        agreement = agree(places)
        plan = plan_healing(agreement.holders, agreement.behind, rank=rank)
        for name, expect in case["expect"].items():
            assert (name in agreement.behind) == expect["heal"]
            if "from" in expect:
                assert plan[name][0] == expect["from"]
                assert sorted(plan[name]) == sorted(agreement.holders)
            if "serves" in expect:
                assert [n for n, donors in plan.items() if donors[0] == name] == expect["serves"]
