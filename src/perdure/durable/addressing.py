"""Whom something is told, who says it, and how it gets into the inbox."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from perdure.durable.given import check_texts
from perdure.durable.messages import (
    Approve,
    Deny,
    Reply,
    Resolve,
    Sent,
    Signal,
    Told,
    decode_told,
    message_of,
)
from perdure.durable.sameness import is_same_word
from perdure.durable.state import find_run, read_run
from perdure.errors import AlreadyResolved, ConfigError, NoRun, NoSession, RunError, RunFinished
from perdure.log import Session, Store, View

NOBODY = "somebody"
"""Whoever says something without a name."""


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A call of a run: in the root's session, or in a sub-agent's."""

    run_id: str
    call_id: str
    session: str = ""
    """Empty for the run's own; `PendingCall.session` says it."""

    def __post_init__(self) -> None:
        check_texts(run_id=self.run_id, call_id=self.call_id, session=self.session)


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """Who says something, and why."""

    who: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        check_texts(by=self.who, reason=self.reason)


class Addressed(NamedTuple):
    """The sessions that a target names, and how they stand."""

    root: Session
    session: Session
    """The root itself, or a sub-agent's session below it."""

    @property
    def view(self) -> View:
        """How the session of the call stands."""
        return self.session.view()

    @property
    def rolls_back(self) -> bool:
        """Whether the run is a saga that is being rolled back."""
        return self.root.view().saga.tripped is not None


async def addressed(
    store: Store, target: Target, *, root: str = "", over: bool = False
) -> Addressed:
    """Find what a target names.

    Args:
        store: Where the run is.
        target: The call, or the run.
        root: The run's session, if it is known.
        over: Take a run that is over, too.

    Raises:
        NoRun: There is no such run, or no such session.
        RunFinished: It is over.
        ConfigError: The session is another run's.
    """
    top = await read_run(store, root or await find_run(store, target.run_id))
    closed = top.view().closed
    if closed is not None and not over:
        raise RunFinished(target.run_id, closed.status)
    if target.session in ("", top.id):
        return Addressed(top, top)
    try:
        session = await read_run(store, target.session)
    except NoSession:
        raise NoRun(target.run_id, target.session) from None
    if session.header.lease_root != top.id:
        raise ConfigError(f"session {session.id!r} does not belong to run {target.run_id!r}")
    return Addressed(top, session)


async def put(store: Store, target: Target, session: Session, told: Told) -> None:
    """Put what is told into the inbox; the same once more is the same message.

    Raises:
        AlreadyResolved: Something else was told meanwhile.
    """
    message = message_of(told, session)
    if not (await store.put(session.id, message)).duplicate:
        return
    for waiting in await store.unconsumed(session.id):
        if waiting.id == message.id:
            first = decode_told(waiting)
            if not is_same_word(first, told):
                raise otherwise(target, first)
            return
    raise AlreadyResolved(target.run_id, target.call_id, "it was taken up meanwhile")


def otherwise(target: Target, first: Told | None) -> RunError:
    """The error for a word that is not the first, which stands."""
    subject, about = target.call_id, ""
    match first:
        case Approve():
            recorded = f"approved by {first.who or NOBODY}"
        case Deny():
            recorded = f"denied by {first.who or NOBODY}"
        case Resolve():
            recorded = first.output if first.output is not None else "it never ran"
        case Signal():
            subject, about = first.name, f"signal {first.name!r}"
            recorded = bytes(first.value).decode()
        case Sent():
            subject, about = first.key, f"message {first.key!r} of channel {first.channel!r}"
            recorded = bytes(first.value).decode()
        case Reply():
            recorded = bytes(first.value).decode()
        case _:
            recorded = "otherwise"
    return AlreadyResolved(target.run_id, subject, recorded, about=about)
