"""What tests of votes share: people with keys, a subject, and the votes they give."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from perdure.ballots import (
    Policy,
    SigningKey,
    Subject,
    Verifier,
    Vote,
    decision_bytes,
    read_key,
)

NAMES = ("ann", "bo", "cy")

TWO_OF_THREE = Policy(need=2, approvers=NAMES, signed=True)

ARGUMENTS = '{"cents":500}'

SUBJECT = Subject(
    session="session-1",
    call="call-1",
    tool="charge",
    digest=hashlib.sha256(ARGUMENTS.encode()).hexdigest(),
    hold="sha256:hold",
)


@functools.cache
def key(name: str) -> SigningKey:
    """A key for each name; `ann/2` is another of ann's."""
    return SigningKey()


def keys(*names: str) -> dict[str, Verifier]:
    return {name: read_key(key(name).public) for name in names or NAMES}


def signed(
    place: int,
    name: str,
    *,
    approves: bool = True,
    subject: Subject = SUBJECT,
    by: str = "",
    at: int = 0,
) -> Vote:
    """A vote in somebody's name, signed with the key of `by`, about a subject."""
    message = decision_bytes(subject, name, approves=approves)
    signature = key(by or name).sign(message)
    return Vote(id=f"v{place}", approver=name, approves=approves, signature=signature, at=at)


def word(place: int, name: str, *, approves: bool = True, at: int = 0) -> Vote:
    return Vote(id=f"v{place}", approver=name, approves=approves, at=at)


def turned(vote: Vote) -> Vote:
    """The same signature under the other verdict."""
    return dataclasses.replace(vote, approves=not vote.approves)
