"""Whether the holder of a lease is known to be dead by its own machine."""

from __future__ import annotations

from danaus.quorum.own_process import has_ended, own_name


def test_this_process_lives():
    assert own_name()
    assert not has_ended(own_name())


def test_another_that_has_its_pid_is_not_it():
    *same, started = own_name().split(" ")
    assert has_ended(" ".join((*same, str(int(started) - 1))))


def test_one_that_is_not_there_has_ended():
    boot, namespace, _, started = own_name().split(" ")
    assert has_ended(f"{boot} {namespace} 999999999 {started}")


def test_nothing_is_known_of_other_machines_and_other_containers():
    boot, namespace, pid, started = own_name().split(" ")
    assert not has_ended(f"another-boot {namespace} 999999999 {started}")
    assert not has_ended(f"{boot} pid:[1] 999999999 {started}")
    assert not has_ended(f"{boot} {namespace} no-pid {pid}")
    assert not has_ended("")
