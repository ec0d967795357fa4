"""What tests of `call_model` are made of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import count

import msgspec

from perdure.compose import (
    ClientTool,
    ConversationState,
    MemoryState,
    client_tool,
    deserialize_conversation_state,
    serialize_conversation_state,
)
from perdure.loop import ModelRequest
from perdure.testing import ScriptedModel
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Message, StreamEvent


class CountingIds:
    """Ids that count."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def new(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"


class Kept(MemoryState):
    """An accessor that keeps every state it was given, and holds each to the invariant."""

    def __init__(self, state: ConversationState | None = None) -> None:
        super().__init__(state)
        self.saves: list[ConversationState] = []

    async def save(self, state: ConversationState) -> None:
        check_history(state)
        again = deserialize_conversation_state(serialize_conversation_state(state))
        assert again == state
        self.saves.append(state)
        await super().save(state)

    @property
    def statuses(self) -> list[str]:
        return [state.status for state in self.saves]

    def status(self) -> str:
        return self.now.status

    @property
    def now(self) -> ConversationState:
        assert self.state is not None
        return self.state


def check_history(state: ConversationState) -> None:
    """Every call has one output behind it, but those that wait, run, or were just asked for."""
    waiting = {one.id for one in state.pending_tool_calls}
    missing = set(check_pairs(state.messages))
    if state.status != "in_progress" and not state.status.startswith("awaiting"):
        assert missing == set()
    elif state.status.startswith("awaiting"):
        assert missing == waiting


def check_pairs(items: Sequence[Item]) -> list[str]:
    """The calls without an output; every output stands behind its call, and is the only one."""
    open_calls: list[str] = []
    done: set[str] = set()
    for item in items:
        if isinstance(item, FunctionCall):
            open_calls.append(item.call_id)
        elif isinstance(item, FunctionCallOutput):
            assert item.call_id in open_calls, item
            assert item.call_id not in done, item
            open_calls.remove(item.call_id)
            done.add(item.call_id)
        elif isinstance(item, Message) and item.role == "user":
            assert not open_calls, "a user's message stands between a call and its output"
    return open_calls


def check_requests(model: ScriptedModel) -> None:
    """In every request each call has exactly one output behind it."""
    for request in model.requests:
        assert check_pairs(request.input) == []


def outputs(request: ModelRequest) -> dict[str, str]:
    """The outputs that a request carries, by call id."""
    return {
        item.call_id: item.text for item in request.input if isinstance(item, FunctionCallOutput)
    }


def calls_of(items: Sequence[Item]) -> list[str]:
    """The ids of the calls among items."""
    return [item.call_id for item in items if isinstance(item, FunctionCall)]


def body(request: ModelRequest) -> dict[str, object]:
    """The settings of a request as its JSON has them."""
    from perdure.wire import encode

    members: dict[str, object] = msgspec.json.decode(encode(request.settings))
    return members


class Counter:
    """Counts how often each call ran, by its argument."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tool(self, name: str = "work", **options: object) -> ClientTool:
        """A tool that counts."""

        @client_tool(name=name, effect="none", **options)  # type: ignore[call-overload, untyped-decorator]
        async def work(x: str = "") -> str:
            """Do some work."""
            self.ran.append(x)
            return f"did {x}"

        made: ClientTool = work
        return made


class Whole:
    """A model whose bodies are not streamed: each answer is its terminal event alone."""

    def __init__(self, script: ScriptedModel) -> None:
        self._script = script

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        last: StreamEvent | None = None
        async for event in self._script.stream(request):
            last = event
        assert last is not None
        yield last
