"""Votes in chaos: approvers whose keys the harness makes, so that signed approvals can be tried."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from perdure.ballots import Ed25519Key, SigningKey, Verifier, read_key
from perdure.loop import PendingCall
from perdure.runs import Runs
from perdure.tools import Approval

SOMEBODY = "chaos"
"""Who approves where anybody may."""


@functools.cache
def key_of(name: str) -> SigningKey:
    """The private key of an approver, the same in every process."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    seed = hashlib.sha256(f"perdure chaos {name}".encode()).digest()
    return SigningKey(Ed25519PrivateKey.from_private_bytes(seed))


@functools.cache
def _public(name: str) -> Ed25519Key:
    return read_key(key_of(name).public)


def chaos_keys(name: str) -> Verifier | None:
    """The public keys, for `Agent(approvers=...)`."""
    return _public(name)


def without_keys(approval: Approval | None) -> Approval | None:
    """The approval without keys of its own, so that the harness can vote."""
    if approval is None:
        return None
    return dataclasses.replace(
        approval, of=tuple(approval.of), escalate=without_keys(approval.escalate)
    )


async def vote(runs: Runs, run: str, call: PendingCall) -> bool:
    """Let as many approve a call as it takes; whether anybody's vote was taken.

    Raises:
        RunError: It waits for no votes any more.
    """
    name = call.call.call_id
    ballot = await runs.ballot(run, name, session=call.session)
    policy = ballot.policy
    voted = {one.approver for one in ballot.votes}
    left = [one for one in policy.approvers or (SOMEBODY,) if one not in voted]
    for approver in left[: max(policy.need - len(voted), 0)]:
        signature = ballot.sign(key_of(approver), approver) if policy.signed else ""
        await runs.approve(run, name, by=approver, signature=signature, session=call.session)
    return policy.need > len(voted)
