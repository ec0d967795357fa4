"""Where a conversation's state is kept: accessors of it, and what they ask of a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from perdure.compose.state import (
    ConversationState,
    deserialize_conversation_state,
    serialize_conversation_state,
)
from perdure.compose.turns import settled
from perdure.errors import StateConflict


@runtime_checkable
class StateAccessor(Protocol):
    """Loads and saves one conversation.

    `call_model` loads once, before anything else, and saves whenever something must not get lost:
    before a tool is entered that has an effect, before a request, and at the end. What `save`
    raises ends the run; nothing that had to wait for it happens.

    It may have an async `interruption()` that says who asked the run to stop, None if nobody did,
    and an async `clear_interruption()`. They keep the wish apart from the state, so that no save
    overwrites it.
    """

    async def load(self) -> ConversationState | None:
        """The state as it was last saved; None if there is none."""
        ...

    async def save(self, state: ConversationState) -> None:
        """Keep a state; it is durable when this returns."""
        ...


class TextStore(Protocol):
    """A store of texts by key, as a table, a directory or a cache has it."""

    async def get(self, key: str) -> str | None:
        """The text of a key; None if there is none."""
        ...

    async def put(self, key: str, text: str | None, *, before: str | None) -> bool:
        """Replace the text of a key if it still is `before`; whether it was. None deletes."""
        ...


class MemoryTexts:
    """Texts in memory, for tests and for processes that live as long as their conversations."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    async def get(self, key: str) -> str | None:
        return self._texts.get(key)

    async def put(self, key: str, text: str | None, *, before: str | None) -> bool:
        if self._texts.get(key) != before:
            return False
        if text is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = text
        return True


class StateIn:
    """A conversation in a store of texts. One accessor serves one run after another.

    Two runs of one conversation at once do not overwrite each other: the second save is refused.

    Args:
        store: Where.
        key: What the store calls it.
    """

    def __init__(self, store: TextStore, key: str) -> None:
        self._store = store
        self._key = key
        self._seen: str | None = None

    async def load(self) -> ConversationState | None:
        """The state as it was last saved.

        Raises:
            InvalidState: What is stored is no state.
            UnsupportedStateVersion: A newer version wrote it.
        """
        self._seen = await self._store.get(self._key)
        return None if self._seen is None else deserialize_conversation_state(self._seen)

    async def save(self, state: ConversationState) -> None:
        """Keep a state.

        Raises:
            StateConflict: Somebody else saved one since this accessor loaded or saved.
        """
        text = serialize_conversation_state(state)
        if not await self._store.put(self._key, text, before=self._seen):
            raise StateConflict(self._key)
        self._seen = text

    # --- interruption ----------------------------------------------------------------

    async def interrupt(self, by: str = "user") -> None:
        """Ask the run that goes on to stop, from any process. It stops after its round."""
        while True:
            before = await self._store.get(self._flag)
            if await self._store.put(self._flag, by or "user", before=before):
                return

    async def interruption(self) -> str | None:
        """Who asked the run to stop."""
        return await self._store.get(self._flag)

    async def clear_interruption(self) -> None:
        """Forget the wish."""
        while (before := await self._store.get(self._flag)) is not None:
            if await self._store.put(self._flag, None, before=before):
                return

    @property
    def _flag(self) -> str:
        return f"{self._key}:interrupt"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StateFunctions:
    """An accessor of two functions, sync or async, that load and save the state as text."""

    read: Callable[[], str | None | Awaitable[str | None]]
    write: Callable[[str], object]

    async def load(self) -> ConversationState | None:
        """The state as it was last saved. Raises as `deserialize_conversation_state`."""
        text = await settled(self.read())
        return None if text is None else deserialize_conversation_state(text)

    async def save(self, state: ConversationState) -> None:
        """Keep a state."""
        await settled(self.write(serialize_conversation_state(state)))


class MemoryState:
    """A conversation in memory: an accessor of one value, which two runs may hand on.

    Attributes:
        state: The state as it was last saved.
    """

    def __init__(self, state: ConversationState | None = None) -> None:
        self.state = state
        self._interrupted: str | None = None

    async def load(self) -> ConversationState | None:
        """The state as it was last saved."""
        return self.state

    async def save(self, state: ConversationState) -> None:
        """Keep a state."""
        self.state = state

    async def interrupt(self, by: str = "user") -> None:
        """Ask the run that goes on to stop."""
        self._interrupted = by or "user"

    async def interruption(self) -> str | None:
        """Who asked the run to stop."""
        return self._interrupted

    async def clear_interruption(self) -> None:
        """Forget the wish."""
        self._interrupted = None


async def interruption_of(accessor: object) -> str | None:
    """Who asked the run of an accessor to stop; None if it cannot say."""
    ask: Callable[[], Awaitable[str | None]] | None = getattr(accessor, "interruption", None)
    return None if ask is None else await ask()


async def clear_interruption(accessor: object) -> None:
    """Forget the wish to stop, where an accessor keeps one."""
    clear: Callable[[], Awaitable[None]] | None = getattr(accessor, "clear_interruption", None)
    if clear is not None:
        await clear()
