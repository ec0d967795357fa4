"""Keys and signatures: how they are written, and which keys are weak."""

from __future__ import annotations

import pytest

from perdure.ballots import (
    BadKey,
    Ed25519Key,
    SigningKey,
    decode_text,
    encode_text,
    read_key,
    signature_fault,
)
from perdure.ballots.curve import weakness
from tests.ballots.people import key

P = 2**255 - 19

SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
"""All eight points whose order divides 8, in their canonical form."""


def test_a_key_survives_its_text_and_its_file() -> None:
    made = SigningKey()
    again = SigningKey.read(made.pem)
    assert again.public == made.public
    assert read_key(made.public).text == made.public
    _, signature = decode_text(again.sign(b"hello"))
    assert signature is not None
    assert read_key(made.public).verify(b"hello", signature)
    assert not read_key(made.public).verify(b"hullo", signature)
    assert not read_key(made.public).verify(b"hello", signature[:-1])


def test_a_private_key_does_not_show_itself() -> None:
    assert "ed25519" not in repr(SigningKey())


@pytest.mark.parametrize("raw", SMALL_ORDER)
def test_a_key_of_small_order_is_refused(raw: str) -> None:
    with pytest.raises(BadKey, match="small order"):
        Ed25519Key(bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ((P + 1).to_bytes(32, "little"), "canonically"),
        ((P + 3).to_bytes(32, "little"), "canonically"),
        (bytes([1, *[0] * 30, 0x80]), "canonically"),
        ((2).to_bytes(32, "little"), "no point"),
        (b"\x05" * 31, "32 bytes"),
    ],
)
def test_bytes_that_are_no_canonical_point_are_refused(raw: bytes, why: str) -> None:
    assert why in weakness(raw)
    with pytest.raises(BadKey):
        Ed25519Key(raw)


def test_a_key_of_mixed_order_is_refused() -> None:
    """A good key plus the point of order two: the same y with its sign turned, and x too."""
    raw = read_key(key("ann").public).raw
    y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
    sign = raw[31] >> 7
    mixed = ((P - y) | ((1 - sign) << 255)).to_bytes(32, "little")
    with pytest.raises(BadKey, match="mixed order"):
        Ed25519Key(mixed)


@pytest.mark.parametrize(
    "text",
    ["", "ann", "ed25519:", "ed25519:???", "rsa:AAAA", "ed25519:" + "A" * 44, "ed25519:AAAA"],
)
def test_a_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(BadKey):
        read_key(text)


def test_a_text_has_one_spelling() -> None:
    text = encode_text("ed25519", b"\x01")
    assert text == "ed25519:AQ"
    assert decode_text("ed25519:AR") == ("ed25519", None)
    assert decode_text("ed25519:AQ==") == ("ed25519", None)


@pytest.mark.parametrize("text", ["", "yes", "ed25519:AAAA", "ed25519:!", ":AAAA"])
def test_a_text_that_is_no_signature_is_told_apart(text: str) -> None:
    assert signature_fault(text)
    assert not signature_fault(key("ann").sign(b""))


@pytest.mark.parametrize(
    "pem", [b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"]
)
def test_a_file_that_holds_no_key_is_refused(pem: bytes) -> None:
    with pytest.raises(BadKey):
        SigningKey.read(pem)
