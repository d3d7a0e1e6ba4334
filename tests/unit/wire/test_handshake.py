"""Both ends prove that they hold the secret, or nothing happens (W-2)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.core.errors import HandshakeRefused
from danaus.wire.handshake import MAX_HELLO_BYTES, NONCE_BYTES, PROOF_BYTES, Acceptor, Dialler
from danaus.wire.secret import Secret

SECRET = Secret(b"k" * 32)
OTHER = Secret(b"o" * 32)
GREETING_BYTES = 8 + NONCE_BYTES + 4


def whole(hello_d: bytes = b"dialler", hello_a: bytes = b"acceptor") -> tuple[bytes, bytes, bytes]:
    """Return the three messages of one good handshake."""
    dialler, acceptor = Dialler(SECRET, hello_d), Acceptor(SECRET, hello_a)
    first = dialler.start()
    second = acceptor.feed(first)
    third = dialler.feed(second)
    assert not acceptor.feed(third)
    assert dialler.done
    assert acceptor.done
    assert dialler.peer_hello == hello_a
    assert acceptor.peer_hello == hello_d
    return first, second, third


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_hellos_arrive(hello_d: bytes, hello_a: bytes) -> None:
    whole(hello_d, hello_a)


def test_the_longest_hello_arrives_and_no_longer_one() -> None:
    whole(b"x" * MAX_HELLO_BYTES, b"y" * MAX_HELLO_BYTES)
    with pytest.raises(ValueError, match="hello"):
        Dialler(SECRET, b"x" * (MAX_HELLO_BYTES + 1))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_portions_do_not_matter(sizes: list[int]) -> None:
    dialler, acceptor = Dialler(SECRET, b"d" * 50), Acceptor(SECRET, b"a" * 60)
    to_acceptor, to_dialler = bytearray(dialler.start()), bytearray()
    for size in itertools.cycle(sizes):
        to_dialler += acceptor.feed(to_acceptor[:size])
        del to_acceptor[:size]
        to_acceptor += dialler.feed(to_dialler[:size])
        del to_dialler[:size]
        if dialler.done and acceptor.done:
            break
    assert (dialler.peer_hello, acceptor.peer_hello) == (b"a" * 60, b"d" * 50)


def test_exact_reading_takes_nothing_of_what_follows() -> None:
    dialler, acceptor = Dialler(SECRET, b"hello"), Acceptor(SECRET)
    stream = bytearray(dialler.start())
    while not acceptor.done:
        need = acceptor.need_bytes
        assert 0 < need <= len(stream)
        answer = acceptor.feed(stream[:need])
        del stream[:need]
        if answer:
            stream += dialler.feed(answer) + b"frames"
    assert bytes(stream) == b"frames"


def test_ends_of_different_connections_are_refused() -> None:
    """One in between shows each a certificate of its own: both see another than was shown."""
    dialler, acceptor = Dialler(SECRET, binding=b"one"), Acceptor(SECRET, binding=b"two")
    answer = acceptor.feed(dialler.start())
    with pytest.raises(HandshakeRefused, match="secret"):
        dialler.feed(answer)
    dialler, acceptor = Dialler(SECRET, binding=b"same"), Acceptor(SECRET, binding=b"same")
    assert not acceptor.feed(dialler.feed(acceptor.feed(dialler.start())))
    assert dialler.done
    assert acceptor.done


def test_another_secret_is_refused_on_both_sides() -> None:
    dialler, acceptor = Dialler(OTHER, b"hello"), Acceptor(SECRET)
    answer = acceptor.feed(dialler.start())
    with pytest.raises(HandshakeRefused, match="secret"):
        dialler.feed(answer)
    with pytest.raises(HandshakeRefused, match="secret"):
        acceptor.feed(b"\0" * PROOF_BYTES)
    for side in (dialler, acceptor):
        with pytest.raises(ValueError, match="not proven"):
            _ = side.peer_hello
        with pytest.raises(HandshakeRefused):
            side.feed(b"more")


@given(st.integers(0, 2), st.integers(0, 10_000), st.integers(1, 255))
def test_one_changed_byte_anywhere_is_refused(which: int, where: int, change: int) -> None:
    """Whatever an attacker changes in whichever message, nobody believes what was changed."""
    dialler, acceptor = Dialler(SECRET, b"hello d"), Acceptor(SECRET, b"hello a")

    def touched(index: int, message: bytes) -> bytes:
        if index != which:
            return message
        changed = bytearray(message)
        changed[where % len(changed)] ^= change
        return bytes(changed)

    try:
        second = acceptor.feed(touched(0, dialler.start()))
        acceptor.feed(touched(2, dialler.feed(touched(1, second))))
    except HandshakeRefused:
        pass
    assert not acceptor.done
    assert not dialler.done or which == 2


def test_a_recorded_dialler_proves_nothing() -> None:
    first, _, third = whole()
    acceptor = Acceptor(SECRET)
    acceptor.feed(first)
    with pytest.raises(HandshakeRefused):
        acceptor.feed(third)


def test_a_recorded_acceptor_proves_nothing() -> None:
    _, second, _ = whole()
    dialler = Dialler(SECRET, b"dialler")
    dialler.start()
    with pytest.raises(HandshakeRefused):
        dialler.feed(second)


def test_a_mirror_proves_nothing() -> None:
    dialler = Dialler(SECRET, b"hello")
    with pytest.raises(HandshakeRefused):
        dialler.feed(dialler.start())
    # With the other role's first word, it still lacks the other role's key.
    nonce = b"n" * NONCE_BYTES
    dialler = Dialler(SECRET, b"hello", nonce=nonce)
    first = dialler.start()
    acceptor = Acceptor(SECRET, b"hello", nonce=nonce)
    answer = acceptor.feed(first)
    assert answer[8:-PROOF_BYTES] == first[8:]
    with pytest.raises(HandshakeRefused):
        acceptor.feed(answer[-PROOF_BYTES:])


def test_an_acceptor_is_no_oracle_for_diallers() -> None:
    """The proof that acceptors give to anyone does not pass for a dialler's at another one."""
    victim, oracle = Acceptor(SECRET), Acceptor(SECRET)
    greeting = Dialler(OTHER, b"").start()
    challenge = victim.feed(greeting)
    nonce_of_victim = challenge[8 : 8 + NONCE_BYTES]
    stolen = oracle.feed(greeting[:8] + nonce_of_victim + greeting[-4:])[-PROOF_BYTES:]
    with pytest.raises(HandshakeRefused):
        victim.feed(stolen)


@pytest.mark.parametrize("make", [lambda: Acceptor(SECRET), lambda: Dialler(SECRET)])
def test_a_stranger_is_refused_at_its_first_wrong_byte(make: object) -> None:
    for words in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"danausX1", b"\0"):
        with pytest.raises(HandshakeRefused, match="speak"):
            make().feed(words)  # type: ignore[operator]


def test_a_claim_of_a_huge_hello_is_refused_before_it_comes() -> None:
    acceptor = Acceptor(SECRET)
    greeting = Dialler(SECRET, b"").start()[:-4] + (MAX_HELLO_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(HandshakeRefused, match="claims"):
        acceptor.feed(greeting)


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_garbage_is_refused_or_waits(garbage: bytes, starts_well: bool, dials: bool) -> None:
    side = Dialler(SECRET) if dials else Acceptor(SECRET)
    magic = b"danausA1" if dials else b"danausD1"
    try:
        side.feed(magic + garbage if starts_well else garbage)
    except HandshakeRefused:
        pass
    assert not side.done


@given(st.data())
def test_pieces_of_good_handshakes_in_any_order_prove_nothing(data: st.DataObject) -> None:
    pieces = [*whole(), *whole(b"", b"")]
    picked = data.draw(st.lists(st.sampled_from(pieces), max_size=6))
    for side in (Acceptor(SECRET), Dialler(SECRET, b"dialler")):
        try:
            for piece in picked:
                side.feed(piece)
        except HandshakeRefused:
            pass
        assert not side.done
