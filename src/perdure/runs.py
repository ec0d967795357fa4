"""The operator's side of runs by id, from any process: look at them, and tell them something."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from perdure.clock import Clock, Ids, RandomIds, SystemClock
from perdure.durable import (
    Ballot,
    RunState,
    Said,
    Target,
    Word,
    ballot_of,
    evidence_of,
    find_run,
    read_run,
    state_of,
    tell_cancel,
    tell_decision,
    tell_reply,
    tell_retry,
    tell_send,
    tell_signal,
    tell_word,
    tree_spend,
    waiting_calls,
)
from perdure.durable.resolving import UNSAID
from perdure.log import AnyEntry, Filters, Listed, Session, Spend, Store, decode_entry
from perdure.log.store import check_store
from perdure.tools import ToolSet

if TYPE_CHECKING:
    from perdure.stores.kept import KeptStores

LOOK_AGAIN = 0.25
"""Seconds between two looks of `tail`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run in a list."""

    run_id: str
    status: str
    agent: str
    kind: str
    session: str
    created_at: str
    due: int | None = None
    """When it wants to be driven, in nanoseconds since the Unix epoch."""
    spend: Spend | None = None
    """What it and its sub-agents have spent, if that was asked for."""


class Runs:
    """The runs of a store.

    Nothing here drives a run: what is told waits in its inbox until a driver takes it up, which is
    whoever calls `agent.run` with its id, or a recovery loop. To cancel a run that nobody drives
    closes it at once.

    Args:
        store: A store, or its URL.
    """

    def __init__(
        self, store: str | Store, *, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._kept: KeptStores | None = None

    # --- looking -------------------------------------------------------------------------------

    async def get(self, run_id: str) -> RunState:
        """How a run stands.

        Raises:
            NoRun: There is none of this id.
        """
        store = self._opened()
        session = await read_run(store, await find_run(store, run_id))
        spend = await tree_spend(store, session)
        return state_of(session, await waiting_calls(store, session, ToolSet()), spend=spend)

    async def record(self, run_id: str) -> Session:
        """The record of a run, for `events_of`, `replay_model` and whatever else projects one.

        Raises:
            NoRun: There is none of this id.
        """
        store = self._opened()
        return await read_run(store, await find_run(store, run_id))

    async def list(
        self,
        *,
        status: str = "",
        agent: str = "",
        limit: int | None = 100,
        spend: bool = False,
    ) -> list[RunSummary]:
        """Runs, oldest first.

        Args:
            status: Only those that stand so.
            agent: Only those of the agent of this name.
            limit: How many at most; None for all.
            spend: Say what each has spent, for which its record is read.
        """
        found: list[RunSummary] = []
        async for one in self.each(status=status, agent=agent, spend=spend):
            if limit is not None and len(found) >= limit:
                break
            found.append(one)
        return found

    async def each(
        self, *, status: str = "", agent: str = "", spend: bool = False
    ) -> AsyncIterator[RunSummary]:
        """Every run, oldest first; no lock is held between two. The arguments are `list`'s."""
        store, after = self._opened(), ""
        filters = Filters(
            runs_only=True, roots_only=True, statuses=frozenset({status} if status else ())
        )
        while True:
            page = await store.list(filters, after=after)
            for listed in page.sessions:
                if not agent or listed.header.agent == agent:
                    spent = None
                    if spend:
                        spent = await tree_spend(store, await read_run(store, listed.id))
                    yield _summary(listed, spent)
            if not page.after:
                return
            after = page.after

    async def tail(self, run_id: str, *, since: int = 0) -> AsyncIterator[AnyEntry]:
        """The entries of a run as they are written, until it is over.

        Args:
            run_id: The run.
            since: How many entries to leave out.

        Raises:
            NoRun: There is none of this id.
        """
        store = self._opened()
        session = await find_run(store, run_id)
        while True:
            stored = await store.read(session, since=since)
            over = False
            for line in stored.lines:
                entry = decode_entry(line)
                over = over or entry.type == "perdure:closed"
                yield entry
            if over:
                return
            since += len(stored.lines)
            await asyncio.sleep(LOOK_AGAIN)

    # --- telling -------------------------------------------------------------------------------

    async def approve(
        self,
        run_id: str,
        call_id: str,
        *,
        by: str = "",
        signature: str = "",
        session: str = "",
        arguments: str | None = None,
        note: str = "",
        reason: str = "",
    ) -> None:
        """Let a held call run, or vote for it where it waits for the votes of several people.

        Args:
            run_id: The run.
            call_id: The call, as `pending` names it.
            by: Who approves.
            signature: Of the ballot, where votes are signed; `Ballot.sign` makes it.
            session: For a call of a sub-agent: its session, as `pending` names it.
            arguments: JSON text to run it with instead of its own.
            note: What the model is told with it.
            reason: Why, for the record.

        Raises:
            NoRun: There is no such run.
            RunFinished: It is over.
            NotHeld: The call does not wait for a decision.
            AlreadyResolved: Somebody decided otherwise.
            VoteRefused: The vote cannot count: by a stranger, not signed, too late.
            InvalidArguments: The arguments are no JSON object.
            ConfigError: The call waits for votes, which change no arguments.
        """
        await tell_decision(
            self._opened(),
            Target(run_id, call_id, session),
            Said(by, reason),
            approves=True,
            clock=self._clock,
            signature=signature,
            arguments=arguments,
            note=note,
        )

    async def deny(
        self,
        run_id: str,
        call_id: str,
        *,
        by: str = "",
        signature: str = "",
        session: str = "",
        note: str = "",
        reason: str = "",
    ) -> None:
        """Refuse a held call; the model reads the reason and goes on. Raises as `approve`.

        Where it waits for votes, an approver votes against it. Anybody else who has no vote there
        ends it at once, as an operator.
        """
        await tell_decision(
            self._opened(),
            Target(run_id, call_id, session),
            Said(by, reason),
            approves=False,
            clock=self._clock,
            signature=signature,
            note=note,
        )

    async def ballot(self, run_id: str, call_id: str, *, session: str = "") -> Ballot:
        """What there is to vote about a call, how it stands, and what is signed.

        Args:
            run_id: The run.
            call_id: The call, as `pending` names it.
            session: For a call of a sub-agent: its session, as `pending` names it.

        Raises:
            NoRun: There is no such run.
            NotHeld: The call asks for no votes.
        """
        return await ballot_of(self._opened(), Target(run_id, call_id, session))

    async def evidence(
        self, run_id: str, call_id: str, *, session: str = "", hold: str = ""
    ) -> str:
        """The decision about a call as JSON text: policy, keys, votes, tally and arguments.

        `perdure.ballots.check_evidence` counts it again, without a store.

        Args:
            run_id: The run.
            call_id: The call.
            session: For a call of a sub-agent: its session.
            hold: Of a call that was held more than once, the entry of the hold; the last one
                unless given.

        Raises:
            NoRun: There is no such run.
            NotHeld: No votes have decided about the call.
        """
        return await evidence_of(self._opened(), Target(run_id, call_id, session), hold)

    async def resolve(
        self,
        run_id: str,
        call_id: str = "",
        *,
        output: str | None = None,
        failed: str | None = None,
        step: str = "",
        value: object = UNSAID,
        never_ran: bool = False,
        compensated: bool = False,
        left: bool = False,
        evidence: object = None,
        min_age: float | None = None,
        by: str = "",
        session: str = "",
        reason: str = "",
    ) -> None:
        """Say what came of a halted call: what it gave, why it failed, or that it never ran.

        The same of a step of it: what it gave, or that it never ran. Where the rollback of a saga
        stops at a call, also: that it was undone by hand, or that it is left as it is; of a call
        that another made, `step` names it, as the report does.

        Args:
            run_id: The run.
            call_id: The call, as `pending` names it; empty for a step of a program.
            output: What its tool gave.
            failed: Its tool failed and did nothing, and why. The model reads it, and a saga is
                rolled back.
            step: The step of the call that halted, if it is one.
            value: With `step`: any JSON value, also None, what the step gave.
            never_ran: Its tool was never entered, or the step never taken, so it is done again.
            compensated: What it did was undone by hand, so that its compensator has nothing to do.
            left: What it did is not undone; the report says so, with the reason.
            evidence: Any JSON value: what the word rests on.
            min_age: With `never_ran`: seconds after which its tool has ended for certain. A tool
                with a timeout needs no word.
            by: Who says so.
            session: For a call of a sub-agent: its session, as `pending` names it.
            reason: Why, for the record.

        Raises:
            NoRun: There is no such run.
            RunFinished: It is over.
            NotHalted: The call's outcome is not unknown.
            AlreadyResolved: Somebody said otherwise.
            HaltTooYoung: The call may still be running.
            ConfigError: Not exactly one thing is said of the call, or of the step not one of
                `value` and `never_ran`, or nobody knows how long the tool may take.
        """
        word = Word(
            output=output,
            failed=failed,
            step=step,
            value=value,
            never_ran=never_ran,
            compensated=compensated,
            left=left,
            evidence=evidence,
            min_age=min_age,
        )
        target = Target(run_id, call_id, session)
        await tell_word(self._opened(), target, Said(by, reason), word, clock=self._clock)

    async def signal(
        self, run_id: str, name: str, value: object = None, *, by: str = "", session: str = ""
    ) -> None:
        """Tell a run that something happened, for the calls that wait for it, now or later.

        Args:
            run_id: The run.
            name: What happened; the first signal of a name stands.
            value: Any JSON value, which whoever waits gets.
            by: Who says so.
            session: For calls of a sub-agent: its session, as `pending` names it.

        Raises:
            NoRun: There is no such run.
            RunFinished: It is over.
            AlreadyResolved: The signal came before, with another value.
            WaitsBelow: Only sub-agents of the run wait for it, and no session is given.
            ConfigError: The name cannot be used, or the value is not JSON.
        """
        await tell_signal(self._opened(), Target(run_id, "", session), Said(by), name, value)

    async def send(
        self,
        run_id: str,
        channel: str,
        value: object = None,
        *,
        key: str,
        by: str = "",
        session: str = "",
    ) -> None:
        """Send a message to a channel of a run, for the call that receives from it.

        Args:
            run_id: The run.
            channel: The channel.
            value: Any JSON value.
            key: Of the message; one that is sent again under its key is the same message.
            by: Who sends it.
            session: For calls of a sub-agent: its session, as `pending` names it.

        Raises:
            NoRun: There is no such run.
            RunFinished: It is over.
            AlreadyResolved: The channel has a message of this key with another value.
            WaitsBelow: Only sub-agents of the run receive from it, and no session is given.
            ConfigError: The channel or the key cannot be used, or the value is not JSON.
        """
        target = Target(run_id, "", session)
        await tell_send(self._opened(), target, Said(by), channel, value, key=key)

    async def answer(
        self,
        run_id: str,
        call_id: str,
        key: str,
        value: object,
        *,
        by: str = "",
        session: str = "",
    ) -> None:
        """Answer a question that a call asks.

        Args:
            run_id: The run.
            call_id: The call, as `pending` names it; empty for a question of a program.
            key: The question's.
            value: Any JSON value of the type that was asked for.
            by: Who answers.
            session: For a call of a sub-agent: its session, as `pending` names it.

        Raises:
            NoRun: There is no such run.
            RunFinished: It is over.
            NotHeld: The call does not ask this.
            AlreadyResolved: Somebody answered otherwise.
            WrongAnswer: The answer is not of the type that was asked for.
            ConfigError: The value is not JSON.
        """
        target = Target(run_id, call_id, session)
        await tell_reply(self._opened(), target, Said(by), key, value)

    async def cancel(self, run_id: str, *, reason: str = "", by: str = "") -> None:
        """Stop a run for good. When it returns, no call and no step with an effect begins any more.

        A step whose effect is `idempotent` may, in a call that is under way, until its driver has
        heard of it and ended the call.

        Raises:
            NoRun: There is no such run.
            RunFinished: It is over.
        """
        said = Said(by, reason)
        await tell_cancel(self._opened(), run_id, said, clock=self._clock, ids=self._ids)

    async def retry(self, run_id: str, *, reason: str = "", by: str = "") -> None:
        """Let a run go on that a limit stopped, or a program in which too many processes died.

        Its turns, or its tries, count anew.

        Raises:
            NoRun: There is no such run.
            RunFinished: It is over.
            ConfigError: Neither is so.
        """
        await tell_retry(self._opened(), run_id, Said(by, reason))

    # --- the store -----------------------------------------------------------------------------

    def _opened(self) -> Store:
        if not isinstance(self._store, str):
            check_store(self._store)
            return self._store
        if self._kept is None:
            from perdure.stores.kept import KeptStores

            self._kept = KeptStores()
        return self._kept.get(self._store)

    async def aclose(self) -> None:
        """Close the store that a URL opened on the running event loop."""
        if self._kept is not None:
            await self._kept.aclose()


def _summary(listed: Listed, spend: Spend | None) -> RunSummary:
    header = listed.header
    return RunSummary(
        run_id=header.run.id if header.run is not None else listed.name,
        status=listed.summary.status,
        agent=header.agent,
        kind=header.run.kind if header.run is not None else "",
        session=header.id,
        created_at=header.created_at,
        due=listed.summary.due,
        spend=spend,
    )
