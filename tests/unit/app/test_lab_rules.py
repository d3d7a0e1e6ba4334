"""Which frames are dropped, and how ways are made slow: as text, before anything is done."""

from __future__ import annotations

import json

import pytest

from danaus.app.lab_links import (
    relay_arguments,
    relay_lines,
    shaping,
    straight_lines,
)
from danaus.app.lab_plan import LabPlan, Link
from danaus.app.lab_rules import dropped, ruleset

PLAN = LabPlan("a", number=3, num_hosts=2)


def _chain(text: str, port: str) -> list[str]:
    """Return the rules for what comes in at a port."""
    (chain,) = (part for part in text.split("chain ") if part.startswith(f"from_{port} "))
    lines = [line.strip() for line in chain.splitlines()[2:]]
    return lines[: lines.index("}")]


def test_a_cut_one_way_stands_where_the_sender_enters():
    plan = LabPlan("a", number=3, num_hosts=2, cuts=(("host1", "host2"),))
    text = ruleset(plan, plan.nodes)
    (rule,) = _chain(text, "h1n0")
    assert rule == f'ether daddr {plan.mac("host2")} counter drop comment "cut host1 host2"'
    assert _chain(text, "h2n0") == []
    assert _chain(text, "h0n0") == []


def test_a_cut_is_on_every_network():
    plan = LabPlan("a", num_hosts=2, num_networks=2, cuts=(("host1", "host2"),))
    (rule,) = _chain(ruleset(plan, plan.nodes), "h1n1")
    assert plan.mac("host2", 1) in rule


def test_loss_is_on_what_a_host_sends_and_on_what_others_send_it():
    plan = LabPlan("a", num_hosts=2, links={"host1": Link(loss=0.25)})
    text = ruleset(plan, plan.nodes)
    (sent,) = _chain(text, "h1n0")
    assert sent.startswith("numgen random mod 1000000 < 250000 counter drop")
    (received,) = _chain(text, "h2n0")
    assert received.startswith(f"ether daddr {plan.mac('host1')} numgen")


def test_a_host_that_is_down_has_no_port_to_watch():
    text = ruleset(PLAN, ["controller", "host2"])
    assert "h1n0" not in text
    assert "h2n0" in text


def test_the_table_is_replaced_in_one_go():
    lines = ruleset(PLAN, PLAN.nodes).splitlines()
    assert lines[:3] == ["table netdev lab", "delete table netdev lab", "table netdev lab {"]
    assert lines[-1] == "}"


def test_counters_are_read_by_comment():
    def rule(comment: str, packets: int) -> dict[str, object]:
        counter = {"counter": {"packets": packets, "bytes": 1}}
        return {"rule": {"comment": comment, "expr": [{"match": {}}, counter, {"drop": None}]}}

    listing = {"nftables": [{"metainfo": {}}, rule("cut a b", 2), rule("cut a b", 3), rule("x", 1)]}
    assert dropped(json.dumps(listing)) == {"cut a b": 5, "x": 1}


SLOW = Link(delay_s=0.02, jitter_s=0.005, rate_mbit=10)


def test_the_kernel_makes_a_way_slow_where_it_can():
    netem = shaping(SLOW, {"netem", "tbf"})
    assert not netem.relayed
    assert netem.qdisc == (
        "root", "netem", "limit", "10000", "delay", "20000us", "5000us", "rate", "10000000bit"
    )  # fmt: skip
    tbf = shaping(Link(rate_mbit=100), {"tbf"})
    assert tbf.qdisc[:4] == ("root", "tbf", "rate", "100000000bit")
    assert tbf.qdisc[tbf.qdisc.index("burst") + 1] == "125000"


@pytest.mark.parametrize(("link", "kernel"), [(SLOW, {"tbf"}), (Link(rate_mbit=1), set())])
def test_a_relay_does_it_elsewhere(link, kernel):
    chosen = shaping(link, kernel)
    assert chosen.relayed
    assert not chosen.qdisc


def test_loss_alone_slows_nothing():
    chosen = shaping(Link(loss=0.5), set())
    assert not chosen.relayed
    assert not chosen.qdisc


def test_a_relay_stands_between_a_host_and_the_switch():
    plan = LabPlan("a", num_hosts=2, links={"host1": SLOW})
    masters = {line[2]: line[4] for line in relay_lines(plan, "host1", 0) if "master" in line}
    assert masters == {"h1n0": "h1n0q", "h1n0u": "h1n0q", "h1n0t": "sw0"}
    assert relay_arguments(plan, "host1", 0) == ("h1n0u", "h1n0t", "0.02", "0.005", "1250000.0")
    assert straight_lines(plan, "host1", 0)[-1] == ("link", "set", "h1n0", "master", "sw0")
