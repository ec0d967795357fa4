"""Questions that a tool asks a person while it runs.

A *question* is a message, with a form (a flat JSON schema) or an address to visit. The *reply*
accepts, declines, or cancels. Where nobody can be asked, the reply is `cancel`, never `decline`:
nobody said no.
"""

from __future__ import annotations

import dataclasses
from contextvars import ContextVar
from typing import Literal, Protocol, TypeAlias

ReplyAction: TypeAlias = Literal["accept", "decline", "cancel"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskedCall:
    """A call that a person is asked about: may it run?"""

    call_id: str
    name: str
    arguments: str
    """Whole, where the question's message shows their beginning."""
    parent: str = ""
    """The call whose tool makes it."""
    reason: str = ""
    """Why it is asked about."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a tool wants to know."""

    message: str
    schema: dict[str, object] | None = None
    """The form of the content: an object whose members are single values."""
    url: str = ""
    """Where the person is to go instead, for what must not pass through here."""
    asked: AskedCall | None = None
    """The call that the question is about, if it is about one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the person said."""

    action: ReplyAction
    content: dict[str, object] | None = None
    """What was filled in, of an accepted form."""
    note: str = ""
    """What else the person said."""


class Elicitor(Protocol):
    """Asks the person who sits before a harness."""

    async def ask(self, question: Question) -> Reply:
        """Put a question and wait for the reply.

        Called on the tool's own task, so `current_call()` is the call that asks. It is cancelled
        with the tool. What it raises means that asking failed, and the tool gets it.
        """
        ...


current_elicitor: ContextVar[Elicitor | None] = ContextVar("perdure_elicitor", default=None)
"""Set by the harness before it creates the task of a tool."""


async def elicit(message: str, *, schema: dict[str, object] | None = None, url: str = "") -> Reply:
    """Ask the person a question, from inside a tool.

    Returns:
        The reply; `cancel` where nobody can be asked.
    """
    elicitor = current_elicitor.get()
    if elicitor is None:
        return Reply(action="cancel")
    return await elicitor.ask(Question(message=message, schema=schema, url=url))
