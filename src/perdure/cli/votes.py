"""What the command line says of votes: who has voted, on the record and in the inbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from perdure.ballots import Policy
from perdure.durable.messages import Vote, decode_told
from perdure.errors import NotHeld

if TYPE_CHECKING:
    from perdure.cli.runs import Desk
    from perdure.durable import Ballot
    from perdure.log.store import Store


class Voted(NamedTuple):
    """What somebody has voted; whether it counts, the tally says."""

    approver: str
    approves: bool
    waits: bool
    """It is in the inbox, and not on the record yet."""

    @property
    def words(self) -> str:
        verdict = "approve" if self.approves else "deny"
        return f"{self.approver}: {verdict}" + (" (not taken up yet)" if self.waits else "")


async def votes_waiting(store: Store, session: str, hold: str) -> list[Voted]:
    """The votes about a hold that are in the inbox of its session."""
    told = [decode_told(message) for message in await store.unconsumed(session)]
    return [
        Voted(one.who, one.approves, waits=True)
        for one in told
        if isinstance(one, Vote) and one.hold == hold
    ]


async def ballot_before(desk: Desk, run: str, call: str, session: str) -> Ballot | None:
    """What there is to vote about a call, before somebody votes; None if a word is enough."""
    try:
        return await desk.runs.ballot(run, call, session=session)
    except NotHeld:
        return None


async def vote_words(
    desk: Desk, ballot: Ballot | None, run: str, call: str, by: str, *, approves: bool, signed: bool
) -> str:
    """What has become of a call by what somebody has just said of it."""
    done = "approved" if approves else "denied"
    if ballot is None:
        becomes = "it runs" if approves else "the model reads it"
        return f"{call} is {done}; {becomes} when {run} is driven"
    policy = ballot.policy
    if ballot.outcome != "pending":
        return f"{call} was {ballot.outcome} before; nothing has changed"
    if not approves and policy.approvers and by not in policy.approvers and not signed:
        return (
            f"{call} is denied by {by}, who is none of the approvers: that ends it when {run} is "
            "driven, whatever the votes are"
        )
    subject = ballot.subject
    waiting = await votes_waiting(desk.store, subject.session, subject.hold)
    voted = [Voted(one.approver, one.approves, waits=False) for one in ballot.votes] + waiting
    lines = [f"the vote of {by} to {'approve' if approves else 'deny'} {call} is in"]
    if _before(voted, by) > 1:
        lines.append(f"{by} has voted more than once, and the first vote that is valid counts")
    if signed:
        lines.append(f"it counts only if this is the key of {by} that the agent knows")
    lines.append(f"{_standing(policy, voted)}, counted when {run} is driven")
    return "; ".join(lines)


def _before(voted: Sequence[Voted], by: str) -> int:
    return sum(one.approver == by for one in voted)


def _standing(policy: Policy, voted: Sequence[Voted]) -> str:
    """How many have approved and denied, each by their first vote, if all of those are valid."""
    first: dict[str, bool] = {}
    for one in voted:
        _ = first.setdefault(one.approver, one.approves)
    approving = sum(first.values())
    standing = f"{approving} of {policy.need} to approve"
    denying = len(first) - approving
    return standing + (f", {denying} to deny" if denying else "")
