"""What a lab is made of: names, addresses, and the lines that join its hosts."""

from __future__ import annotations

import ipaddress
import itertools
import math
from pathlib import Path

import pytest

from danaus.app.lab_numbers import alias, free_numbers
from danaus.app.lab_plan import (
    CONTROLLER,
    LabPlan,
    Link,
    address_lines,
    filled,
    hosts_file,
    join_lines,
    part_lines,
    switch_lines,
)
from danaus.core.errors import ConfigError

PLAN = LabPlan("a", number=3, num_hosts=2, num_networks=2)


def test_every_address_and_device_is_one_node_s_alone():
    plans = [LabPlan("a", number=n, num_hosts=40, num_networks=2) for n in (1, 250)]
    for of in (LabPlan.ipv4, LabPlan.ipv6_of, LabPlan.mac):
        all_of_them = [of(p, node, net) for p in plans for node in p.nodes for net in p.networks]
        assert len(set(all_of_them)) == len(all_of_them) == 2 * 41 * 2
    for plan in plans:
        for network in plan.networks:
            own = ipaddress.ip_network(f"{plan.ipv4(CONTROLLER, network)}/24", strict=False)
            six = ipaddress.ip_network(f"{plan.ipv6_of(CONTROLLER, network)}/64", strict=False)
            for node in plan.nodes:
                assert ipaddress.ip_address(plan.ipv4(node, network)) in own
                assert ipaddress.ip_address(plan.ipv6_of(node, network)) in six


def test_names_fit_the_kernel():
    plan = LabPlan("a", number=250, num_hosts=200, num_networks=2)
    for node, network in itertools.product((CONTROLLER, "host200"), plan.networks):
        assert len(f"{plan.port_of(node, network)}u") <= 15
        assert len(plan.device_of(node, network)) <= 15


def test_a_host_is_joined_by_a_cable_with_its_own_hardware_address():
    assert join_lines(PLAN, "host1", 77)[:4] == [
        ("link", "add", "h1n0", "type", "veth", "peer", "name", "eth0",
         "address", "02:da:00:03:00:01", "netns", "77"),
        ("link", "set", "h1n0", "addrgenmode", "none"),
        ("link", "set", "h1n0", "master", "sw0"),
        ("link", "set", "h1n0", "up"),
    ]  # fmt: skip
    assert join_lines(PLAN, CONTROLLER, 1)[0][7] == "dn3n0"
    assert part_lines(PLAN, "host1") == [("link", "del", "h1n0"), ("link", "del", "h1n1")]


def test_each_network_has_a_bridge():
    added = [line[2] for line in switch_lines(PLAN) if line[:2] == ("link", "add")]
    assert added == ["sw0", "sw1"]


def test_a_host_gets_both_addresses_and_knows_where_all_others_are():
    lines = address_lines(PLAN, "host1", with_ipv6=True)
    added = [line[2:5] for line in lines if line[0] == "addr"]
    assert ("198.18.3.11/24", "dev", "eth0") in added
    assert ("fdda:3:1::b/64", "dev", "eth1") in added
    known = {line[2]: line[4] for line in lines if line[0] == "neigh"}
    assert known["198.18.3.12"] == known["fdda:3::c"] == PLAN.mac("host2")
    assert known["198.18.3.1"] == PLAN.mac(CONTROLLER)
    assert PLAN.ipv4("host1") not in known


def test_without_ipv6_nobody_is_given_one():
    lines = address_lines(PLAN, "host1", with_ipv6=False)
    assert not [line for line in lines if any(":" in word and "::" in word for word in line)]


def test_hosts_know_each_other_by_name():
    assert "198.18.3.12 host2\n" in hosts_file(PLAN)


def test_agents_listen_where_they_are_told():
    assert PLAN.listening("host2") == "tcp:198.18.3.12:7200"
    six = LabPlan("a", number=3, ipv6=True, port=9)
    assert six.listening("host2") == "tcp:[fdda:3::c]:9"


def test_a_command_is_filled_in_and_other_braces_stay():
    assert filled(("x={name}", '{"a": {b}}'), {"name": "host1"}) == ("x=host1", '{"a": {b}}')


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "Lab"}, {"name": "../x"}, {"name": ""}, {"num_hosts": 0}, {"num_hosts": 201},
        {"num_networks": 3}, {"port": 0},
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigError):
        LabPlan(**{"name": "a", **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"loss": 1.5}, {"delay_s": -1}, {"delay_s": 0.1, "jitter_s": 0.2}, {"rate_mbit": -1},
        {"delay_s": math.inf}, {"rate_mbit": math.inf}, {"delay_s": math.nan},
    ],
)  # fmt: skip
def test_links_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError):
        Link(**wrong)


def test_a_stranger_is_refused_with_the_names_that_there_are():
    with pytest.raises(ConfigError, match="controller, host1 to host2"):
        PLAN.index("host3")


def test_the_alias_of_a_device_is_one_short_word_wherever_its_lab_lies():
    folders = [Path("/", "it's # my " * 50, name) for name in ("a", "b")]
    for folder in folders:
        assert len(alias(folder)) < 100
        assert alias(folder).split() == [alias(folder)]
        assert not set(alias(folder)) & set("'\"#\\")
    assert alias(folders[0]) != alias(folders[1]) != alias(Path("/b"))


def test_links_in_words():
    assert str(Link(0.02, 0.005, 0.01, 10)) == "20 ms ± 5 ms 1 % lost 10 Mbit/s"
    assert str(Link()) == ""


def test_addresses_that_this_machine_uses_are_left_alone():
    routes = [
        {"dst": "default", "gateway": "10.0.0.1"},
        {"dst": "198.18.1.0/24"},
        {"dst": "198.19.2.7"},
    ]
    assert next(free_numbers(routes)) == 3
    assert list(free_numbers([{"dst": "198.18.0.0/16"}])) == []
