"""Ballots from outside: what there is to vote about, votes put into an inbox, evidence exported."""

from __future__ import annotations

import dataclasses

from perdure.ballots import (
    Evidence,
    Outcome,
    Policy,
    SigningKey,
    Subject,
    Tally,
    Uncounted,
    Vote as Cast,
    decision_bytes,
    write_evidence,
)
from perdure.clock import Clock
from perdure.durable.addressing import Said, Target, addressed
from perdure.durable.given import check_texts
from perdure.durable.messages import Vote, message_of
from perdure.durable.telling import tell_approve, tell_deny
from perdure.durable.voting import vote_fault
from perdure.errors import AlreadyResolved, ConfigError, NoRun, NotHeld, VoteRefused
from perdure.log import Call, Session, Store
from perdure.log.approvals import HeldGate, subject_of, votes_of
from perdure.log.entries import TallyEntry
from perdure.log.store import named_session
from perdure.tools import canonical_arguments


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """What there is to vote about one held call, and how it stands."""

    run_id: str
    subject: Subject
    """What every signature is about."""
    arguments: str
    """The arguments, in the canonical form that the subject's digest is of."""
    reason: str
    """Why it is held."""
    policy: Policy
    level: int = 0
    """How often it was escalated."""
    votes: tuple[Cast, ...] = ()
    """Those on the record. Whether each counts, the tally says."""
    outcome: Outcome = "pending"
    """What they came to."""

    def message(self, approver: str, *, approves: bool = True) -> bytes:
        """The bytes that an approver signs."""
        return decision_bytes(self.subject, approver, approves=approves)

    def sign(self, key: SigningKey, approver: str, *, approves: bool = True) -> str:
        """An approver's signature, for `Runs.approve` or, to deny, `Runs.deny`."""
        return key.sign(self.message(approver, approves=approves))


async def tell_decision(
    store: Store,
    target: Target,
    said: Said,
    *,
    approves: bool,
    clock: Clock,
    signature: str = "",
    arguments: str | None = None,
    note: str = "",
) -> None:
    """Approve or deny a held call: by a vote where it waits for votes, else by a word.

    A denial without a signature, by somebody who is none of the approvers, is an operator's: it
    ends the call at once.

    Raises:
        NoRun: There is no such run.
        RunFinished: It is over.
        NotHeld: The call does not wait for a decision.
        AlreadyResolved: Somebody decided otherwise.
        VoteRefused: The vote cannot count: by a stranger, not signed, no signature, too late.
        ConfigError: The arguments are no JSON object, or a vote cannot have them.
    """
    check_texts(signature=signature, note=note, arguments=arguments or "")
    session, call, gate = await _gate(store, target)
    if call is None or gate is None:
        if signature and call is not None and call.waits and not call.suspended:
            why = "a word is enough here; leave the signature out"
            raise VoteRefused(target.run_id, target.call_id, why)
        if approves:
            await tell_approve(store, target, said, arguments=arguments, note=note)
        else:
            await tell_deny(store, target, said, note=note)
        return
    strange = bool(gate.gate.of) and said.who not in gate.gate.of
    if not approves and strange and not signature and gate.tally is None:
        await tell_deny(store, target, said, note=note)
        return
    if arguments is not None or note:
        raise ConfigError(
            f"call {target.call_id!r} waits for votes, which are about its arguments as they are "
            "and carry no note; deny it, with a reason that the model reads, to have others"
        )
    await _vote(store, target, said, session, gate, signature, clock, approves=approves)


async def _vote(  # noqa: PLR0917 - what a vote is made of
    store: Store,
    target: Target,
    said: Said,
    session: Session,
    gate: HeldGate,
    signature: str,
    clock: Clock,
    *,
    approves: bool,
) -> None:
    run, call = target.run_id, target.call_id
    if gate.tally is not None:
        if gate.tally.outcome == ("approved" if approves else "denied"):
            return
        raise AlreadyResolved(run, call, gate.tally.outcome)
    if fault := vote_fault(gate.gate, said.who, signature):
        raise VoteRefused(run, call, fault)
    now, due = clock.wall(), gate.gate.due
    if due is not None and now > due:
        raise VoteRefused(run, call, "the approval has expired")
    earlier = [vote for vote in gate.votes if vote.approver == said.who]
    if earlier and not gate.gate.signed and (earlier[0].verdict == "approve") != approves:
        raise AlreadyResolved(run, call, f"{earlier[0].verdict} by {said.who}")
    told = Vote(
        who=said.who,
        reason=said.reason,
        call_id=call,
        hold=gate.hold.id,
        digest=gate.gate.digest,
        approves=approves,
        signature=signature,
        at=now,
    )
    # The same vote once more is a duplicate by its id, and changes nothing.
    _ = await store.put(session.id, message_of(told, session))


# --- looking -------------------------------------------------------------------------------------


async def ballot_of(store: Store, target: Target) -> Ballot:
    """What there is to vote about a call.

    Raises:
        NoRun: There is no such run.
        NotHeld: The call waits for no votes, and never did.
    """
    session, call, gate = await _gate(store, target, over=True)
    if call is None or gate is None:
        raise NotHeld(target.run_id, target.call_id, "it asks for no votes")
    return Ballot(
        run_id=target.run_id,
        subject=subject_of(session.id, call, gate),
        arguments=_arguments(call, gate),
        reason=gate.hold.reason,
        policy=gate.gate.policy,
        level=gate.gate.level,
        votes=votes_of(gate),
        outcome=gate.outcome,
    )


async def evidence_of(store: Store, target: Target, hold: str = "") -> str:
    """The decision about a call with all that it rests on, as JSON text.

    Args:
        store: Where the run is.
        target: The call.
        hold: The hold it is about, by its entry; the last one unless given.

    Raises:
        NoRun: There is no such run.
        NotHeld: Nothing was decided by votes.
    """
    session, call, gate = await _gate(store, target, over=True, hold=hold)
    if call is None or gate is None or gate.tally is None:
        raise NotHeld(target.run_id, target.call_id, "no votes have decided about it")
    tally = gate.tally
    evidence = Evidence(
        subject=subject_of(session.id, call, gate),
        arguments=_arguments(call, gate),
        policy=Policy(
            need=tally.need, approvers=tally.approvers, signed=tally.signed, due=tally.due
        ),
        keys={name: str(key) for name, key in tally.keys.items()},
        votes=votes_of(gate),
        tally=_tally(tally),
    )
    return write_evidence(evidence)


def _tally(entry: TallyEntry) -> Tally:
    uncounted = [{name: str(value) for name, value in one.items()} for one in entry.uncounted]
    return Tally(
        outcome=_outcome(entry),
        approved_by=entry.approved_by,
        denied_by=entry.denied_by,
        uncounted=tuple(
            Uncounted(one["vote"], one["approver"], one["reason"]) for one in uncounted
        ),
        records=entry.votes,
    )


def _outcome(entry: TallyEntry) -> Outcome:
    match entry.outcome:
        case "approved" | "denied" | "expired":
            return entry.outcome
        case _:
            return "pending"


def _arguments(call: Call, gate: HeldGate) -> str:
    """The arguments that a gate holds, in their canonical form."""
    held = gate.hold.arguments or bytes(gate.hold.args).decode()
    return canonical_arguments(held or call.arguments).decode()


async def _gate(
    store: Store, target: Target, *, over: bool = False, hold: str = ""
) -> tuple[Session, Call | None, HeldGate | None]:
    """The call and its gate: that of a hold, the last with `over`, else the one it waits at."""
    root = await _root(store, target.run_id)
    session = (await addressed(store, target, root=root, over=over)).session
    view = session.view()
    call = view.calls.named(target.call_id)
    if call is None:
        return session, None, None
    if hold:
        named = view.approvals.at(hold)
        about = named is not None and named.hold.target == call.entry
        return session, call, named if about else None
    gate = view.approvals.of(call.entry) if over else view.approvals.waiting(call)
    return session, call, gate


async def _root(store: Store, name: str) -> str:
    """The session of a run, or of a chat by its name."""
    found = await named_session(store, name)
    if found is None:
        raise NoRun(name)
    return found.id
