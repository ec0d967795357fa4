"""What tools share with their caller and with each other while a run goes on.

Every tool has a *slot* under its name, and there is one more, `shared`. A store lives as long as
one `call_model`; it is no part of the conversation's state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Protocol, cast

from perdure.compose.shapes import Checker
from perdure.compose.turns import ToolCall
from perdure.errors import ConfigError, InvalidArguments
from perdure.loop import Replay
from perdure.tools import Call, CancelSignal

SHARED = "shared"
"""The slot that all tools share."""

Snapshot = Mapping[str, Mapping[str, object]]
Listener = Callable[[Snapshot], None]


class ContextStore:
    """Slots of members. Copies go in and out; sync tools may use it from their threads."""

    def __init__(self, initial: Mapping[str, Mapping[str, object]] | None = None) -> None:
        self._slots = {name: dict(members) for name, members in (initial or {}).items()}
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()

    def get(self, name: str) -> dict[str, object]:
        """A copy of a slot; empty if nothing was put there."""
        with self._lock:
            return dict(self._slots.get(name, {}))

    def set(self, name: str, members: Mapping[str, object]) -> None:
        """Replace a slot."""
        with self._lock:
            self._slots[name] = dict(members)
            self._tell()

    def merge(self, name: str, members: Mapping[str, object]) -> None:
        """Put members into a slot, beside those that are there."""
        with self._lock:
            self._slots[name] = {**self._slots.get(name, {}), **members}
            self._tell()

    def snapshot(self) -> dict[str, dict[str, object]]:
        """A copy of every slot."""
        with self._lock:
            return {name: dict(members) for name, members in self._slots.items()}

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with a snapshot after every change; on the thread that makes it.

        Returns:
            A function that ends the subscription.
        """
        with self._lock:
            self._listeners.append(listener)

        def unsubscribe() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return unsubscribe

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener(self.snapshot())


class ContextLog(Replay[Snapshot]):
    """The changes of a store, for many consumers; behind the tail only the last is kept."""

    def _join(self) -> None:
        stop = len(self._events) - self._tail
        self._events[:stop] = self._events[stop - 1 : stop]
        self._joined = 1
        for cursor in self._cursors:
            cursor.position = max(cursor.position - stop + 1, 0)


class TaskPort(Protocol):
    """What a tool reaches of a task that outlives its call."""

    def log(self, entry: object) -> None: ...


class ToolContext:
    """What a tool knows of the run it serves. Get it with `tool_context()`, or as a parameter.

    Attributes:
        number_of_turns: The round, from 1; 0 in `on_response_received`.
        tool_call: The call; None in `on_response_received`.
        conversation_id: The id of the conversation's state.
    """

    __slots__ = (
        "_call",
        "_emit",
        "_own",
        "_shared",
        "_store",
        "_task",
        "_tool",
        "conversation_id",
        "number_of_turns",
        "tool_call",
    )

    def __init__(
        self,
        *,
        tool: str,
        store: ContextStore,
        number_of_turns: int = 0,
        tool_call: ToolCall | None = None,
        conversation_id: str = "",
        own: Checker | None = None,
        shared: Checker | None = None,
        call: Call | None = None,
        emit: Callable[[object], None] | None = None,
        task: TaskPort | None = None,
    ) -> None:
        self._tool = tool
        self._store = store
        self._own = own
        self._shared = shared
        self._call = call
        self._emit = emit
        self._task = task
        self.number_of_turns = number_of_turns
        self.tool_call = tool_call
        self.conversation_id = conversation_id

    def check(self) -> None:
        """Hold what the slots contain to their schemas.

        Raises:
            InvalidArguments: It does not fit.
        """
        for name, rules in ((self._tool, self._own), (SHARED, self._shared)):
            if rules is not None:
                try:
                    rules.read(self._store.get(name))
                except InvalidArguments as error:
                    raise InvalidArguments(
                        f"the context of {name!r} does not fit: {error.reason}", path=error.path
                    ) from None

    # --- slots -----------------------------------------------------------------------

    @property
    def local(self) -> Mapping[str, object]:
        """The tool's own slot as it is now: a copy that cannot be changed."""
        return MappingProxyType(self._store.get(self._tool))

    @property
    def shared(self) -> Mapping[str, object]:
        """The slot of all tools as it is now."""
        return MappingProxyType(self._store.get(SHARED))

    def set_context(self, members: Mapping[str, object]) -> None:
        """Replace the tool's own slot. Members that its schema does not name are dropped.

        Raises:
            ConfigError: The tool has no schema for its context.
            InvalidArguments: A member does not fit.
        """
        self._store.set(self._tool, _read(members, self._own, self._tool))

    def merge_context(self, members: Mapping[str, object]) -> None:
        """Put members into the tool's own slot. Raises as `set_context`."""
        self._store.merge(self._tool, _read(members, self._own, self._tool))

    def set_shared_context(self, members: Mapping[str, object]) -> None:
        """Replace the slot of all tools. Raises as `set_context`."""
        self._store.set(SHARED, _read(members, self._shared, SHARED))

    def merge_shared_context(self, members: Mapping[str, object]) -> None:
        """Put members into the slot of all tools. Raises as `set_context`."""
        self._store.merge(SHARED, _read(members, self._shared, SHARED))

    # --- the call --------------------------------------------------------------------

    @property
    def call_id(self) -> str:
        """The call's id; empty in `on_response_received`."""
        return self.tool_call.id if self.tool_call is not None else ""

    @property
    def cancelled(self) -> CancelSignal | None:
        """Whether the call was told to stop; None where no call runs."""
        return self._call.cancelled if self._call is not None else None

    def emit(self, event: object) -> None:
        """Show a preliminary result, in a tool of any kind.

        Raises:
            InvalidArguments: It does not fit the tool's event schema.
        """
        if self._emit is not None:
            self._emit(event)

    def log(self, entry: object) -> None:
        """Note what a background task is at; in any other tool it is `emit`."""
        if self._task is not None:
            self._task.log(entry)
        else:
            self.emit(entry)

    def defer(self, task_id: str, *, note: str = "") -> Deferred:
        """Say that somebody else will give the result, under this id: `return ctx.defer("job-7")`.

        Args:
            task_id: 1 to 256 characters, unique in the conversation.
            note: What the model reads of it meanwhile.

        Raises:
            ConfigError: The id is empty or too long.
        """
        return Deferred(task_id, note)


class Deferred:
    """The result of a tool whose real result comes later, from elsewhere."""

    __slots__ = ("note", "task_id")

    def __init__(self, task_id: str, note: str = "") -> None:
        if not 1 <= len(task_id) <= 256:
            raise ConfigError(f"a task id has 1 to 256 characters, got {len(task_id)}")
        self.task_id = task_id
        self.note = note


def _read(members: Mapping[str, object], rules: Checker | None, name: str) -> dict[str, object]:
    if rules is None:
        raise ConfigError(f"{name!r} has no context schema, so nothing can be put there")
    known = rules.members
    return {key: rules.read_member(key, value) for key, value in members.items() if key in known}


current: ContextVar[ToolContext | None] = ContextVar("perdure_tool_context", default=None)


def tool_context() -> ToolContext:
    """The context of the tool that is running.

    Raises:
        ConfigError: No tool of a `call_model` is running here.
    """
    found = current.get()
    if found is None:
        raise ConfigError("tool_context() was called outside a tool of a call_model")
    return found


def initial_slots(given: object) -> dict[str, dict[str, object]]:
    """Slots as a caller gives them.

    Raises:
        ConfigError: They are not a mapping of mappings.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"context maps a tool's name to its members, got {given!r}")
    slots: dict[str, dict[str, object]] = {}
    for name, members in cast("Mapping[object, object]", given).items():
        if not isinstance(members, Mapping):
            raise ConfigError(f"the context of {name!r} is a mapping of members, got {members!r}")
        slots[str(name)] = {
            str(key): value for key, value in cast("Mapping[object, object]", members).items()
        }
    return slots
