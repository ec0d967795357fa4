"""What tests of approvals share: people with keys, gated tools, and their votes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from perdure import Agent, Approval, Ballot, Runs
from perdure.clock import Clock
from perdure.durable.messages import Vote, message_of
from perdure.log import Store
from perdure.log.entries import AnyEntry, RefusedEntry, TallyEntry, VoteEntry
from perdure.testing.scripted import Script
from tests.ballots.people import NAMES, key
from tests.durable.world import RUN, Act, World, agent_of, entries_of, one_call, session_of

CALL = "call_t0_1"

PUBLIC = {name: key(name).public for name in NAMES}

TWO_OF_THREE = Approval(need=2, of=NAMES)


@dataclasses.dataclass(kw_only=True)
class Gated(Act):
    """A tool that people have to approve."""

    approval: Approval | bool | None = TWO_OF_THREE
    kept: ClassVar[None] = None


def gated_agent(
    store: Store,
    world: World,
    approval: Approval | bool | None = TWO_OF_THREE,
    script: Script | None = None,
    **members: object,
) -> Agent:
    tools = [Gated(world=world, approval=approval)]
    plain = agent_of(store, [], script if script is not None else one_call())
    return plain.with_(**{"tools": tools, "approvers": PUBLIC, **members})


async def vote(
    store: Store,
    *names: str,
    approves: bool = True,
    by_key: str = "",
    session: str = "",
    call_id: str = CALL,
    ballot: Ballot | None = None,
    clock: Clock | None = None,
) -> None:
    """Signed votes, put as `perdure approve` puts them."""
    runs = Runs(store, clock=clock)
    ballot = ballot or await runs.ballot(RUN, call_id, session=session)
    for name in names:
        signature = ballot.sign(key(by_key or name), name, approves=approves)
        tell = runs.approve if approves else runs.deny
        await tell(RUN, call_id, by=name, signature=signature, session=session)


async def smuggle(store: Store, told: Vote) -> None:
    """A vote that nobody checked when it was put."""
    session = await session_of(store)
    await store.put(session.id, message_of(told, session))


def told_of(ballot: Ballot, name: str, *, approves: bool = True) -> Vote:
    """The message that a vote is put as."""
    return Vote(
        who=name,
        call_id=ballot.subject.call,
        hold=ballot.subject.hold,
        digest=ballot.subject.digest,
        approves=approves,
        signature=ballot.sign(key(name), name, approves=approves),
    )


async def kinds(store: Store) -> list[str]:
    return [entry.type for entry in await entries_of(store)]


async def tally_of(store: Store) -> TallyEntry:
    (tally,) = [one for one in await entries_of(store) if isinstance(one, TallyEntry)]
    return tally


async def votes_in(store: Store) -> list[VoteEntry]:
    return [one for one in await entries_of(store) if isinstance(one, VoteEntry)]


async def refusals(store: Store) -> list[str]:
    return [one.reason for one in await entries_of(store) if isinstance(one, RefusedEntry)]


def without(entries: list[AnyEntry], *types: str) -> list[str]:
    return [entry.type for entry in entries if entry.type not in types]
