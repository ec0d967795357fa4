"""What a run and its sub-agents have spent, and the account of its next drive.

A sub-agent that has ended is carried in its parent's record, and not read again; one whose call is
open is read itself, whatever is carried of it. So nothing counts twice, and a run of a thousand
sub-agents costs one session to look at.
"""

from __future__ import annotations

from perdure.durable.driven import Driven
from perdure.durable.state import read_run
from perdure.errors import NoSession
from perdure.log import Session, Spend, Store, View
from perdure.log.entries import RetryEntry, RunEntry
from perdure.log.spend import SpendFold
from perdure.loop import Limits
from perdure.loop.account import Account, Spent


async def tree_spend(store: Store, session: Session, *, until: str = "") -> Spend:
    """What a session and the sub-agents below it have spent.

    Args:
        store: Where they are.
        session: The record.
        until: A timestamp: what stands behind it does not count. Empty for all.
    """
    fold = SpendFold()
    for entry in session.entries:
        if not until or entry.ts <= until:
            fold.apply(entry)
    working = session.view().calls.open
    total = fold.own
    for child, told in fold.below.items():
        if told.spend is not None and told.call_id not in working:
            total += told.spend
            continue
        try:
            below = await read_run(store, child)
        except NoSession:  # it was linked, and a crash kept it from being made
            continue
        total += await tree_spend(store, below, until=until)
    return total


def with_own_limits(driven: Driven, view: View) -> Driven:
    """Who drives a run under the limits that it was given itself: now, or when it was last driven.

    So whoever takes it up after a crash, a recovery loop, say, holds it to them.
    """
    if driven.own_limits is not None:
        return driven
    for entry in reversed(view.path):
        if isinstance(entry, RunEntry) and entry.budget is not None:
            given = entry.budget
            limits = Limits(
                given.turns,
                given.seconds,
                given.tokens,
                given.cost,
                given.output,
                given.prices,
            )
            return driven.limited(limits)
    return driven


async def account_of(
    driven: Driven, store: Store, session: Session, parent: Account | None
) -> Account:
    """The account of the next drive of a session: what its record says was spent counts.

    After somebody asked for a retry, what was spent before counts no more.
    """
    limits = driven.limits
    if limits.tokens is None and limits.usd is None:
        return driven.account(parent)  # whoever limits it has counted it
    spend = await tree_spend(store, session)
    retries = [entry for entry in session.path() if isinstance(entry, RetryEntry)]
    before = Spend()
    if retries:
        before = await tree_spend(store, session, until=retries[-1].ts)
    return driven.account(
        parent,
        spent=Spent(spend.tokens.total - before.tokens.total, spend.usd - before.usd),
    )
