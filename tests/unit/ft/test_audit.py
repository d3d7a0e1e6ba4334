"""T-8: which leaf is computed twice, by whom, and what is made of digests that differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.core.errors import ConfigError
from danaus.ft.audit import Audited, AuditPlan, Audits, auditor_of, compare, objection
from danaus.quorum.messages import MemberId

A, B, C, D = (MemberId(name, 0, 1) for name in "abcd")
RUNS = {"a": range(3), "b": range(3, 6), "c": range(6, 8)}
HOSTS = {"a": "one", "b": "one", "c": "two"}


def audited(**digests):
    """Leaf 1, which is a's, as each computed it."""
    return {
        MemberId(name, 0, 1): (Audited(1, digest, name == "a"),) for name, digest in digests.items()
    }


@given(st.integers(0, 2**31), st.integers(1, 64))
def test_the_rate_is_the_share_of_leaves_that_are_computed_twice(seed, num_leaves):
    plan = AuditPlan(0.5 / num_leaves, seed)
    chosen = [plan.leaf_of(step, num_leaves) for step in range(400)]
    found = [leaf for leaf in chosen if leaf is not None]
    assert 120 < len(found) < 280
    assert all(0 <= leaf < num_leaves for leaf in found)
    assert chosen == [
        AuditPlan(0.5 / num_leaves, seed).leaf_of(step, num_leaves) for step in range(400)
    ]


def test_every_leaf_comes_up_and_none_at_rate_zero():
    assert {AuditPlan(1.0).leaf_of(step, 8) for step in range(200)} == set(range(8))
    assert {AuditPlan(0.0).leaf_of(step, 8) for step in range(200)} == {None}
    with pytest.raises(ConfigError, match="from 0 \\(never\\) to 1"):
        AuditPlan(1.5)


def test_the_second_is_another_replica_on_another_host_where_there_is_one():
    looks = {auditor_of(step, 1, RUNS, hosts=HOSTS) for step in range(50)}
    assert looks == {"c"}
    alike = dict.fromkeys(RUNS, "one")
    assert {auditor_of(step, 1, RUNS, hosts=alike) for step in range(50)} == {"b", "c"}
    assert auditor_of(1, 1, {"a": range(8)}, hosts=HOSTS) is None


def test_the_owner_and_the_second_bring_a_digest_and_in_a_dispute_all_do():
    plan = AuditPlan(1.0)
    step = next(step for step in range(1, 99) if plan.leaf_of(step, 8) == 1)

    def who(disputed):
        return [
            member.replica_id
            for member in (A, B, C)
            if Audits(member, plan).leaf(step, RUNS, HOSTS, disputed=disputed) == 1
        ]

    assert who(False) == ["a", "c"]
    assert who(True) == ["a", "b", "c"]


def test_equal_digests_say_nothing():
    assert compare(audited(a="x", b="x")) == ()
    assert objection(audited(a="x")) == objection({}) == ""


def test_two_that_differ_are_in_dispute_and_the_sum_may_be_wrong():
    (found,) = compare(audited(a="x", b="y"))
    assert found.wrong == frozenset()
    assert found.is_in_sum
    assert objection(audited(a="x", b="y")) == ("leaf 1 comes out as x at a/0#1; y at b/0#1")


def test_a_third_decides_against_the_one_whose_leaf_is_in_the_sum():
    (found,) = compare(audited(a="x", b="y", c="y"))
    assert found.wrong == {A}
    assert objection(audited(a="x", b="y", c="y"))


def test_who_only_looked_and_is_wrong_does_not_stop_the_step():
    (found,) = compare(audited(a="x", b="y", c="x"))
    assert found.wrong == {B}
    assert not found.is_in_sum
    assert objection(audited(a="x", b="y", c="x")) == ""


def test_half_is_no_majority():
    (found,) = compare(audited(a="x", b="x", c="y", d="y"))
    assert (found.wrong, found.is_in_sum) == (frozenset(), True)


def test_ranks_hold_different_shards_and_are_compared_with_their_like():
    shards = {
        MemberId(name, rank, 1): (Audited(1, f"shard {rank}", name == "a"),)
        for name in "ab"
        for rank in range(2)
    }
    assert compare(shards) == ()
    shards[MemberId("b", 1, 1)] = (Audited(1, "other", False),)
    (found,) = compare(shards)
    assert found.words == "leaf 1 comes out as other at b/1#1; shard 1 at a/1#1"


def test_a_dispute_is_remembered_for_its_step_and_counted():
    audits = Audits(A, AuditPlan(1.0))
    assert not audits.is_disputed(5)
    for number in (1, 2):
        audits.settle(5, audited(a="x", b="y"))
        assert (audits.is_disputed(5), audits.num_disputes) == (True, number)
    audits.settle(5, audited(a="x", b="y", c="x"))
    assert audits.num_disputes == 2, "a majority ends it"
    audits.settle(6, audited(a="x", b="y"))
    assert (audits.is_disputed(5), audits.is_disputed(6), audits.num_disputes) == (False, True, 1)
