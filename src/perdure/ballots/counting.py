"""What is voted about, the bytes that are signed, and the rule by which votes are counted."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Literal

from perdure.ballots.keys import Verifier, decode_text, is_verified, sharing
from perdure.ballots.names import names_fault

FORMAT = "perdure.approval.v1"

TAG = FORMAT.encode() + b"\n"
"""What the signed bytes begin with."""

Outcome = Literal["pending", "approved", "denied", "expired"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Whose votes count, and how many it takes."""

    need: int = 1
    approvers: tuple[str, ...] = ()
    """Empty for anybody who has a name; then the first word decides."""
    signed: bool = False
    """Only signatures count, not words."""
    due: int | None = None
    """When it expires, in nanoseconds since the Unix epoch; a later vote does not count."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One call, as one hold shows it."""

    session: str
    """The session that made the call: a sub-agent's has an id of its own."""
    call: str
    tool: str
    digest: str
    """SHA-256 of the canonical arguments, as 64 hexadecimal digits."""
    hold: str
    """The entry that holds the call; held again, it is another subject."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """A verdict about a subject, as it is recorded."""

    id: str
    """The entry that records it."""
    approver: str
    approves: bool
    signature: str = ""
    """`ALGORITHM:BASE64URL`; empty for a word."""
    at: int = 0
    """When it was given, in nanoseconds since the Unix epoch, says whoever put it."""


def decision_bytes(subject: Subject, approver: str, *, approves: bool) -> bytes:
    """The bytes that an approver signs (LOG 5.7).

    The tag line; then session, call and tool, each behind its length in four bytes, the greatest
    first; the 32 bytes of the digest; hold and approver, each behind its length; and one byte, 1 to
    approve and 0 to deny.

    Raises:
        ValueError: The digest is no SHA-256, or a text is not what UTF-8 has.
    """
    digest = bytes.fromhex(subject.digest)
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError(f"{subject.digest!r} is no SHA-256")
    before = (subject.session, subject.call, subject.tool)
    verdict = b"\x01" if approves else b"\x00"
    return b"".join(
        (
            TAG,
            *map(_sized, before),
            digest,
            _sized(subject.hold),
            _sized(approver),
            verdict,
        )
    )


def _sized(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(4, "big") + data


def policy_fault(policy: Policy) -> str:
    """Why nothing can be decided by a policy; empty if something can."""
    most = len(policy.approvers) or 1
    if not _whole(policy.need):
        return f"a whole number of people is needed, not {policy.need!r}"
    if fault := names_fault(policy.approvers):
        return fault
    if not 1 <= policy.need <= most:
        return f"{policy.need} of {most} cannot be needed"
    if policy.need > 1 and not policy.signed:
        return "more than one approval counts only if they are signed"
    if policy.signed and not policy.approvers:
        return "signed approvals need the names of those who sign"
    return ""


def _whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


@dataclasses.dataclass(frozen=True, slots=True)
class Uncounted:
    """A vote that does not count, and why."""

    vote: str
    approver: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What votes come to."""

    outcome: Outcome
    approved_by: tuple[str, ...] = ()
    denied_by: tuple[str, ...] = ()
    uncounted: tuple[Uncounted, ...] = ()
    records: tuple[str, ...] = ()
    """Every vote that was read, in order, so that one left out shows."""


def count(
    policy: Policy,
    subject: Subject,
    votes: Iterable[Vote],
    keys: Mapping[str, Verifier],
    *,
    now: int | None = None,
) -> Tally:
    """What votes come to, in the order of the record.

    The first valid vote of an approver is theirs; one that is not valid never takes their seat. It
    is approved when as many approve as are needed, and denied when so many deny that the others
    cannot be enough. What comes behind that does not count.

    Args:
        policy: Whose votes count.
        subject: What was voted about.
        votes: The votes.
        keys: What checks each approver's signatures.
        now: When it is counted, for whether it has expired; None if it has not.

    Raises:
        BadKey: A verifier says anything else than True or False.
    """
    shared = sharing({name: key for name, key in keys.items() if name in policy.approvers})
    seats: dict[str, bool] = {}
    uncounted: list[Uncounted] = []
    records: list[str] = []
    outcome: Outcome = "pending"
    for vote in votes:
        records.append(vote.id)
        why = "decided before" if outcome != "pending" else ""
        why = why or _why_not(policy, subject, vote, keys, shared)
        why = why or ("superseded" if vote.approver in seats else "")
        if why:
            uncounted.append(Uncounted(vote.id, vote.approver, why))
            continue
        seats[vote.approver] = vote.approves
        outcome = _outcome(policy, seats)
    if outcome == "pending" and policy.due is not None and now is not None and now >= policy.due:
        outcome = "expired"
    return Tally(
        outcome=outcome,
        approved_by=tuple(name for name, approves in seats.items() if approves),
        denied_by=tuple(name for name, approves in seats.items() if not approves),
        uncounted=tuple(uncounted),
        records=tuple(records),
    )


def _outcome(policy: Policy, seats: Mapping[str, bool]) -> Outcome:
    approved = sum(seats.values())
    if approved >= policy.need:
        return "approved"
    left = (len(policy.approvers) or 1) - (len(seats) - approved)
    return "denied" if left < policy.need else "pending"


def _why_not(
    policy: Policy,
    subject: Subject,
    vote: Vote,
    keys: Mapping[str, Verifier],
    shared: frozenset[str],
) -> str:
    """Why a vote is not valid; empty if it is."""
    if not vote.approver or (policy.approvers and vote.approver not in policy.approvers):
        return "not eligible"
    if policy.due is not None and vote.at > policy.due:
        return "late"
    if not policy.signed:
        return ""
    key = keys.get(vote.approver)
    if key is None:
        return "no key"
    if vote.approver in shared:
        return "shared key"
    alg, signature = decode_text(vote.signature)
    if alg != key.alg or signature is None:
        return "other algorithm"
    message = decision_bytes(subject, vote.approver, approves=vote.approves)
    return "" if is_verified(key, message, signature) else "bad signature"
