"""A transcript as the messages of Chat Completions.

A *group* is the items that become messages together: a system message; what users say in a row,
where a service wants it as one; an assistant's message with the calls it makes, and the outputs
of those. A group is *settled* when the next has begun and every call in it has its output: it is
encoded once then, and kept in the memo of the transcript's list (DESIGN 7). Only what is not
settled is mapped again.

The rules that hold by construction (DESIGN 6.1): the outputs of calls follow their message, one for
each call, in the order of the calls; what is missing is said to be, what is too much is left out;
call ids and names are such that the service takes them; no message is empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, cast

from perdure.loop.transcript import Items
from perdure.models.chat.assistant import AssistantMessage, Placed, call_id_for
from perdure.models.chat.parts import (
    ChatPart,
    content_parts,
    flat,
    note_unknown,
    output_parts,
    text_part,
)
from perdure.models.dialects import Dialect, Thoughts
from perdure.models.mapping.forms import NO_OUTPUT
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.texts import json_text
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Message, Reasoning

_KEY = "perdure.models.chat:messages"
_SYSTEM = ("system", "developer")


class State(NamedTuple):
    """Where a mapping stands.

    Attributes:
        at: The place of the next item.
        last: The role of the last message that was sent.
        carry: Parts that the next user message begins with.
        taken: The places of outputs further on that were sent already.
        system: The system text that has to go to the front.
    """

    at: int = 0
    last: str = ""
    carry: tuple[ChatPart, ...] = ()
    taken: frozenset[int] = frozenset()
    system: tuple[str, ...] = ()


class Group(NamedTuple):
    """What some items became.

    Attributes:
        raw: Their messages, with commas between; empty if they gave none.
        need: How many items have to be there for this to hold.
        closed: Whether another group has begun and nothing is owed to this one.
        losses: What was lost.
        state: Where the mapping stands after it.
    """

    raw: bytes
    need: int
    closed: bool
    losses: tuple[Loss, ...]
    state: State


class Messages(NamedTuple):
    """The messages of a snapshot.

    Attributes:
        fragments: Their bytes, with commas between.
        length: How many bytes they are together.
        system: The system text that has to go before them.
        losses: What was lost.
    """

    fragments: list[bytes]
    length: int
    system: tuple[str, ...]
    losses: tuple[Loss, ...]


def messages(items: Items, dialect: Dialect, thoughts: Thoughts) -> Messages:
    """The messages of a snapshot; what was settled before is taken as it is.

    Args:
        items: The snapshot.
        dialect: Who reads it.
        thoughts: How thoughts go back to its model.
    """
    key = (_KEY, dialect, thoughts)
    held = cast("_Settled | None", items.memo.get(key))
    if held is None:
        held = items.memo[key] = _Settled()
    return held.view(items, dialect, thoughts)


class _Settled:
    """The settled groups of one transcript list."""

    def __init__(self) -> None:
        self._states = [State()]  # after the first n groups
        self._needs = [0]  # how many items the first n groups need
        self._fragments: list[bytes] = []  # of the groups that gave messages
        self._counts = [0]  # how many fragments the first n groups gave
        self._lengths = [0]  # how many bytes those are
        self._losses: list[Loss] = []
        self._lost = [0]  # how many losses the first n groups have

    def view(self, items: Items, dialect: Dialect, thoughts: Thoughts) -> Messages:
        known = bisect_right(self._needs, len(items)) - 1
        growing = known == len(self._states) - 1
        state = self._states[known]
        mapper = _Mapper(items[state.at :], state.at, dialect, thoughts)
        rest: list[Group] = []
        while state.at < len(items) or state.carry:
            group = mapper.group(state)
            state = group.state
            growing = growing and group.closed
            if growing:
                self._settle(group)
                known += 1
            else:
                rest.append(group)
        return self._joined(known, rest, state)

    def _settle(self, group: Group) -> None:
        self._states.append(group.state)
        self._needs.append(max(self._needs[-1], group.need))
        raw = group.raw
        if raw:
            self._fragments.append(b"," + raw if self._fragments else raw)
        self._counts.append(len(self._fragments))
        self._lengths.append(self._lengths[-1] + len(self._fragments[-1] if raw else b""))
        self._losses += group.losses
        self._lost.append(len(self._losses))

    def _joined(self, known: int, rest: list[Group], state: State) -> Messages:
        fragments = self._fragments[: self._counts[known]]
        length = self._lengths[known]
        losses = self._losses[: self._lost[known]]
        for group in rest:
            losses += group.losses
            if group.raw:
                fragments.append(b"," + group.raw if fragments else group.raw)
                length += len(fragments[-1])
        return Messages(fragments, length, state.system, tuple(losses))


class _Mapper:
    """Maps the items of a list from some place on.

    Args:
        items: The items from there on.
        offset: The place of the first.
        dialect: Who reads it.
        thoughts: How thoughts go back to its model.
    """

    def __init__(
        self, items: Sequence[Item], offset: int, dialect: Dialect, thoughts: Thoughts
    ) -> None:
        self._items = items
        self._offset = offset
        self._end = offset + len(items)
        self._dialect = dialect
        self._thoughts: Thoughts = thoughts
        self._joins = dialect.merge_users or thoughts in {"parts", "details"}

    def group(self, state: State) -> Group:
        """The group that begins at a state."""
        if state.at >= self._end:
            return self._attachments(state, self._end, closed=False)
        item = self._items[state.at - self._offset]
        if isinstance(item, Message) and item.role == "user":
            return self._users(state)
        if state.carry:
            return self._attachments(state, state.at, closed=True)
        if isinstance(item, Message) and item.role in _SYSTEM:
            return self._system(item, state)
        if _is_assistants(item):
            return self._assistant(state)
        return self._left_out(item, state)

    # --- system and users ------------------------------------------------------------

    def _system(self, item: Message, state: State) -> Group:
        lost = _at(state.at)
        parts = content_parts(item.content, self._dialect, lost)
        note_unknown(item, lost)
        after = state._replace(at=state.at + 1)
        if self._dialect.system_first:
            text = "\n\n".join(str(part["text"]) for part in parts if part["type"] == "text")
            system = (*state.system, text) if text else state.system
            return self._made([], lost, after._replace(system=system))
        role = item.role if self._dialect.developer else "system"
        message: dict[str, object] = {"role": role, "content": flat(parts)}
        made = [message] if parts else []
        return self._made(made, lost, after._replace(last=role if made else state.last))

    def _users(self, state: State) -> Group:
        lost = Lost()
        said: list[list[ChatPart]] = [list(state.carry)] if state.carry else []
        after = state._replace(carry=())
        need, whole = 0, True
        while after.at < self._end and (after.at == state.at or self._dialect.merge_users):
            item = self._items[after.at - self._offset]
            if isinstance(item, Message) and item.role == "user":
                lost.at = f"input[{after.at}]"
                said.append(content_parts(item.content, self._dialect, lost))
                note_unknown(item, lost)
                after = after._replace(at=after.at + 1)
            elif self._says_nothing(item):
                group = self.group(after)
                lost.all += group.losses
                after = group.state
            elif isinstance(item, Message) and item.role in _SYSTEM:
                break
            else:
                # Thoughts that this model is not shown stand between users without a message.
                group = self._assistant(after)
                need, whole = max(need, group.need), group.closed or bool(group.raw)
                if group.raw or not group.closed:
                    break
                lost.all += group.losses
                after = group.state
        parts = _together([parts for parts in said if parts])
        if not parts:
            return self._made([], lost, after, need=need, whole=whole)
        made = self._bridged(state, {"role": "user", "content": flat(parts)})
        return self._made(made, lost, after._replace(last="user"), need=need, whole=whole)

    def _says_nothing(self, item: Item) -> bool:
        """Whether an item gives no message of its own."""
        if isinstance(item, Message) and item.role in _SYSTEM:
            return self._dialect.system_first
        return not _is_assistants(item)

    def _attachments(self, state: State, at: int, *, closed: bool) -> Group:
        """The user message of attachments that nobody else says something beside."""
        made = self._bridged(state, {"role": "user", "content": list(state.carry)})
        after = state._replace(at=at, carry=(), last="user")
        return Group(_joined(made), at + closed, closed, (), after)

    def _bridged(self, state: State, message: dict[str, object]) -> list[dict[str, object]]:
        if state.last == "tool" and self._dialect.bridge:
            return [{"role": "assistant", "content": self._dialect.bridge}, message]
        return [message]

    def _left_out(self, item: Item, state: State) -> Group:
        lost = _at(state.at)
        if state.at not in state.taken:
            lost.add(item.type, _why_left_out(item))
        taken = state.taken - {state.at}
        return self._made([], lost, state._replace(at=state.at + 1, taken=taken))

    def _made(
        self,
        made: Sequence[dict[str, object]],
        lost: Lost,
        after: State,
        *,
        need: int = 0,
        whole: bool = True,
    ) -> Group:
        closed = whole and after.at < self._end
        need = max(need, after.at)
        return Group(_joined(made), need, closed, tuple(lost.all), after)

    # --- assistants ----------------------------------------------------------------

    def _assistant(self, state: State) -> Group:
        lost = Lost()
        run = _Run(self._items, self._offset, state, joins=self._joins, lost=lost)
        message = AssistantMessage(self._dialect, self._thoughts, lost)
        message.add(run.placed)
        value = message.value()
        made = [] if value is None else [value]
        carry: list[ChatPart] = []
        for index, call in run.calls:
            made.append(self._output(index, call, run.outputs.get(index), carry, lost))
        last = "tool" if run.calls else "assistant" if made else state.last
        after = State(run.at, last, tuple(carry), run.taken, state.system)
        if carry and not self._dialect.merge_users:
            made += self._bridged(after, {"role": "user", "content": carry})
            after = after._replace(last="user", carry=())
        return self._made(made, lost, after, need=run.need, whole=run.whole)

    def _output(
        self,
        index: int,
        call: FunctionCall,
        found: tuple[int, FunctionCallOutput] | None,
        carry: list[ChatPart],
        lost: Lost,
    ) -> dict[str, object]:
        call_id = call_id_for(self._dialect, call.call_id)
        message: dict[str, object] = {"role": "tool", "tool_call_id": call_id}
        if found is None:
            lost.at = f"input[{index}]"
            lost.add(call.type, "it has no output; one was made up")
            return {**message, "content": NO_OUTPUT}
        lost.at = f"input[{found[0]}]"
        texts, attachments = output_parts(found[1].output, call_id, self._dialect, lost)
        note_unknown(found[1], lost)
        carry += attachments
        content = flat(texts)
        if not isinstance(content, str) and not self._dialect.tool_parts:
            content = "\n".join(str(text["text"]) for text in texts)
        return {**message, "content": content or ""}


class _Run:
    """The items of an assistant's message, and the outputs of its calls.

    Attributes:
        placed: The items that the message is made of.
        calls: The calls among them.
        outputs: Their outputs, by the place of the call.
        at: The place after the run.
        taken: The places of outputs behind it that it takes.
        need: How many items it needs.
        whole: Whether every call has its output.
    """

    def __init__(
        self, items: Sequence[Item], offset: int, state: State, *, joins: bool, lost: Lost
    ) -> None:
        self._items = items
        self._offset = offset
        self._joins = joins
        self._lost = lost
        self._owed: dict[str, int] = {}
        self._ids: dict[str, FunctionCall] = {}
        self._spoken = False
        self.placed: list[Placed] = []
        self.calls: list[tuple[int, FunctionCall]] = []
        self.outputs: dict[int, tuple[int, FunctionCallOutput]] = {}
        self.at = state.at
        self._before = state.taken
        while self.at < offset + len(items) and self._take(items[self.at - offset]):
            self.at += 1
        self.need = self.at
        self.taken = frozenset(place for place in self._before if place >= self.at)
        for call_id in list(self._owed):
            self._look_ahead(call_id)
        self.whole = not self._owed

    def _take(self, item: Item) -> bool:
        """Whether an item belongs to the run."""
        self._lost.at = f"input[{self.at}]"
        match item:
            case FunctionCallOutput():
                self._answer(item)
            case FunctionCall():
                if self.calls and not self._owed:
                    return False
                self._call(item)
            case Reasoning() | Message():
                return self._part(item)
            case _:
                self._lost.add(item.type, _why_left_out(item))
        return True

    def _part(self, item: Reasoning | Message) -> bool:
        if not _is_assistants(item) or (self.calls and not self._owed):
            return False
        if self._spoken and not self.calls and not self._joins:
            return False
        self._spoken = self._spoken or isinstance(item, Message)
        self.placed.append((self.at, item))
        return True

    def _call(self, item: FunctionCall) -> None:
        if item.call_id in self._ids:
            self._lost.add(item.type, "a call beside it has the same call id")
            return
        self._ids[item.call_id] = item
        self._owed[item.call_id] = self.at
        self.calls.append((self.at, item))
        self.placed.append((self.at, item))

    def _answer(self, item: FunctionCallOutput) -> None:
        if self.at in self._before:
            return
        index = self._owed.pop(item.call_id, None)
        if index is not None:
            self.outputs[index] = (self.at, item)
            return
        again = item.call_id in self._ids
        self._lost.add(item.type, "its call has an output already" if again else _NO_CALL)

    def _look_ahead(self, call_id: str) -> None:
        """Find the output of a call behind what was said meanwhile."""
        for place in range(self.at, self._offset + len(self._items)):
            item = self._items[place - self._offset]
            if isinstance(item, FunctionCall) and item.call_id == call_id:
                return
            if (
                isinstance(item, FunctionCallOutput)
                and item.call_id == call_id
                and place not in self.taken
            ):
                self.outputs[self._owed.pop(call_id)] = (place, item)
                self.taken |= {place}
                self.need = max(self.need, place + 1)
                return


_NO_CALL = "no call before it has its call id"


def _is_assistants(item: Item) -> bool:
    if isinstance(item, Message):
        return item.role == "assistant"
    return isinstance(item, FunctionCall | Reasoning)


def _why_left_out(item: Item) -> str:
    match item:
        case FunctionCallOutput():
            return _NO_CALL
        case Message():
            return f"nobody knows the role {item.role!r}"
        case _:
            return "only its maker can read it"


def _at(index: int) -> Lost:
    lost = Lost()
    lost.at = f"input[{index}]"
    return lost


def _together(said: list[list[ChatPart]]) -> list[ChatPart]:
    """What was said, as one; texts alone become one text."""
    if len(said) < 2:
        return said[0] if said else []
    texts = [flat(parts) for parts in said]
    if all(isinstance(text, str) for text in texts):
        return [text_part("\n\n".join(cast("list[str]", texts)))]
    return [part for parts in said for part in parts]


def _joined(made: Sequence[dict[str, object]]) -> bytes:
    return b",".join(map(json_text, made))
