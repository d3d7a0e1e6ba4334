"""A relay's queue: in order, late by what was asked for, bounded."""

from __future__ import annotations

from danaus.app.lab_relay import Direction


def test_frames_wait_and_keep_their_order():
    way = Direction(delay_s=1.0, jitter_s=0.0, bytes_per_s=0.0)
    way.take(b"a", now=10.0)
    way.take(b"b", now=10.5)
    assert way.next_at == 11.0
    assert way.due(10.99) == []
    assert way.due(11.0) == [b"a"]
    assert way.due(20.0) == [b"b"]
    assert way.next_at is None


def test_jitter_never_turns_two_frames_round():
    way = Direction(delay_s=1.0, jitter_s=1.0, bytes_per_s=0.0)
    frames = [bytes([number]) for number in range(200)]
    for number, frame in enumerate(frames):
        way.take(frame, now=0.001 * number)
    early = way.due(0.7)
    assert early + way.due(3.0) == frames
    assert len(early) < len(frames)


def test_a_slow_way_takes_its_time_for_each_byte():
    way = Direction(delay_s=0.0, jitter_s=0.0, bytes_per_s=1000.0)
    for _ in range(3):
        way.take(b"x" * 100, now=0.0)
    assert [len(way.due(0.1001 * number)) for number in (1, 2, 3)] == [1, 1, 1]


def test_what_does_not_fit_is_dropped_and_counted():
    way = Direction(delay_s=0.0, jitter_s=0.0, bytes_per_s=1000.0)
    for _ in range(30):
        way.take(b"x" * 100, now=0.0)
    assert way.num_dropped > 0
    assert len(way.due(100.0)) == 30 - way.num_dropped
