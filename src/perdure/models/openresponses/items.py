"""A transcript as the input of an Open Responses request.

Items go as they are; what a server would refuse is repaired here, in the outgoing copy alone
(DESIGN 6.1). A *run* is what a model made in a row: thoughts and what they led to. It is *settled*
when something else has followed; it is encoded once then, and kept in the memo of the transcript's
list (DESIGN 7). Only the last run is mapped anew.

The rules that hold by construction: a thought goes only before something that it led to; a message
or a call has its id only behind a sealed thought of its run, for a server that keeps nothing takes
the id for a link to a thought that it misses, and what it ran itself, which it takes under no other
name, stays behind where that thought does; each call has one output, and an id and a name that are
legal; marks and items of other providers stay behind.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, TypeVar, cast

from msgspec.structs import replace

from perdure.loop.transcript import Items, left_out
from perdure.models.http.body import Body
from perdure.models.mapping.forms import NO_OUTPUT
from perdure.models.mapping.kept import is_makers, kept_text, without_marks
from perdure.models.mapping.losses import Loss, Lost
from perdure.models.mapping.names import legal_id, legal_name
from perdure.wire import (
    ABSENT,
    Annotation,
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    Item,
    Message,
    OutputText,
    Part,
    Reasoning,
    UnknownItem,
    UnknownPart,
    encode,
    function_call_output,
    is_extension,
    text_of,
)
from perdure.wire.marks import MAKER, slug_of

_KEY = "perdure.models.openresponses:items"

CALL_ID = re.compile(r".{1,64}", re.DOTALL)
NAME = re.compile(r"[A-Za-z0-9_-]+")

NamedT = TypeVar("NamedT", bound=Message | FunctionCall | Reasoning)


def sent(items: Items) -> Sent:
    """What a snapshot sends; what was settled before is taken as it is."""
    held = cast("_Settled | None", items.memo.get(_KEY))
    if held is None:
        held = items.memo[_KEY] = _Settled()
    if len(items) < held.seen:  # an older snapshot: rare, and not worth remembering
        return _Settled().view(items)
    if held.last is None or held.last[0] != len(items):
        held.last = (len(items), held.view(items))
    return held.last[1]


class Sent:
    """What a snapshot sends.

    Attributes:
        losses: What is left out of it, or goes in another form.
    """

    __slots__ = ("_fragments", "_length", "losses")

    def __init__(self, fragments: list[bytes], length: int, losses: tuple[Loss, ...]) -> None:
        self._fragments = fragments
        self._length = length
        self.losses = losses

    def between(self, head: bytes, tail: bytes) -> Body:
        """A body of `head`, the items, and `tail`."""
        return Body([head, *self._fragments, tail], len(head) + self._length + len(tail))


class _Called(NamedTuple):
    """A call of the transcript: its place, the id it is sent under, and whether it is answered."""

    place: int
    sent: str
    answered: bool = False


class _Owed(NamedTuple):
    """A call without an output yet.

    Attributes:
        place: The place of its item.
        behind: How many fragments go before the output that stands for the one it has not.
    """

    place: int
    behind: int


class _Settled:
    """The settled items of one transcript list.

    Attributes:
        seen: How many items of the list are settled.
        last: The last snapshot that was asked for: its length, and what it sends.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.last: tuple[int, Sent] | None = None
        self._fragments: list[bytes] = []  # each with the comma that goes before it
        self._length = 0
        self._losses: list[Loss] = []
        self._calls: dict[str, _Called] = {}  # the last one of each call id
        self._taken: set[str] = set()  # the ids that calls are sent under
        self._owed: dict[str, _Owed] = {}  # by the id that is sent
        self._gaps: Sequence[int] = ()  # the places before which a thought was left out

    def view(self, items: Items) -> Sent:
        self._gaps = left_out(items)
        run: list[Item] = []
        for index, item in enumerate(items[self.seen :], self.seen):
            if _goes_on(item):
                run.append(item)
                continue
            self._settle(run, index - len(run))
            run = []
            self._take_given(item, index)
        if not run:
            return self._shown(_Mapped([], [], {}))
        return self._shown(self._map(run, len(items) - len(run)))

    def _settle(self, run: list[Item], start: int) -> None:
        if not run:
            return
        mapped = self._map(run, start)
        self._add(mapped.raws)
        self._losses += mapped.losses
        self._calls.update(mapped.calls)
        for call in mapped.calls.values():
            self._taken.add(call.sent)
            self._owed[call.sent] = _Owed(call.place, len(self._fragments))
        self.seen = start + len(run)

    def _map(self, run: list[Item], start: int) -> _Mapped:
        first = bisect_left(self._gaps, start)
        gaps = frozenset(self._gaps[first : bisect_left(self._gaps, start + len(run))])
        return _Run(run, start, self._taken, gaps).mapped()

    def _add(self, raws: Sequence[bytes]) -> None:
        for raw in raws:
            self._fragments.append(b"," + raw if self._fragments else raw)
            self._length += len(self._fragments[-1])

    def _take_given(self, item: Item, index: int) -> None:
        """Take an item that no model made."""
        lost = _at(index)
        made: Item | None = item
        if isinstance(item, FunctionCallOutput):
            made = self._output(item, lost)
        if made is not None:
            made = clean(made, lost)
        if made is not None:
            self._add([encode(made)])
        self._losses += lost.all
        self.seen = index + 1

    def _output(self, output: FunctionCallOutput, lost: Lost) -> FunctionCallOutput | None:
        call = self._calls.get(output.call_id)
        if call is None or call.answered:
            why = "its call has an output already" if call else "no call before it has its call id"
            lost.add(output.type, f"{why} ({output.call_id!r}); left out")
            return None
        self._calls[output.call_id] = call._replace(answered=True)
        del self._owed[call.sent]
        return output if call.sent == output.call_id else replace(output, call_id=call.sent)

    def _shown(self, last: _Mapped) -> Sent:
        """What is settled and the last run, with an output for every call."""
        fragments, length = self._fragments.copy(), self._length
        losses = [*self._losses, *last.losses]
        for raw in last.raws:
            fragments.append(b"," + raw if fragments else raw)
            length += len(fragments[-1])
        owed = self._owed
        if last.calls:
            end = len(fragments)
            owed = owed | {call.sent: _Owed(call.place, end) for call in last.calls.values()}
        for added, (call_id, (place, behind)) in enumerate(owed.items()):
            raw = b"," + encode(function_call_output(call_id, NO_OUTPUT))
            fragments.insert(behind + added, raw)  # calls are owed in the order of the transcript
            length += len(raw)
            why = f"it has no output; {NO_OUTPUT!r} is sent as one"
            losses.append(Loss(f"input[{place}]", FunctionCall.type, why))
        return Sent(fragments, length, tuple(losses))


class _Mapped(NamedTuple):
    """What a run became.

    Attributes:
        raws: Its items.
        losses: What was lost.
        calls: The calls in it, by the ids they have in the transcript.
    """

    raws: list[bytes]
    losses: list[Loss]
    calls: dict[str, _Called]


class _Run:
    """Maps the items that a model made in a row.

    Args:
        items: The items.
        start: The place of the first.
        taken: The call ids that calls before them are sent under.
        gaps: The places before which a thought was left out.
    """

    def __init__(
        self, items: Sequence[Item], start: int, taken: set[str], gaps: frozenset[int]
    ) -> None:
        self._items = items
        self._start = start
        self._taken = taken
        self._own: set[str] = set()
        self._calls: dict[str, _Called] = {}
        self._gaps = gaps
        self._linked = False  # the last thought is sent, sealed
        self._missing = False  # the last thought is not sent

    def mapped(self) -> _Mapped:
        lost = [_at(self._start + offset) for offset in range(len(self._items))]
        made = [self._made(offset, item, lost[offset]) for offset, item in enumerate(self._items)]
        last = _last_made(made)
        raws: list[bytes] = []
        for offset, item in enumerate(made):
            if isinstance(item, Reasoning) and offset > last:
                lost[offset].add(item.type, "what it led to is not there")
            elif item is not None:
                raws.append(encode(item))
        return _Mapped(raws, [loss for one in lost for loss in one.all], self._calls)

    def _made(self, offset: int, item: Item, lost: Lost) -> Item | None:
        if self._start + offset in self._gaps:
            self._linked, self._missing = False, True
        if isinstance(item, Reasoning):
            return self._thought(item, lost)
        left = self._left(offset, item, lost)
        return left if left is None or self._linked else self._alone(left, lost)

    def _left(self, offset: int, item: Item, lost: Lost) -> Item | None:
        """What is left of an item without what is another's."""
        match item:
            case FunctionCall():
                call = self._call(self._start + offset, item, lost)
                return None if call is None else clean(call, lost)
            case UnknownItem() if is_makers(item.type):
                lost.add(item.type, f"only {slug_of(item.type)} takes it back")
                return None
            case _:
                return clean(item, lost)

    def _alone(self, item: Item, lost: Lost) -> Item | None:
        """An item without a sealed thought before it."""
        match item:
            case Message() | FunctionCall():
                return _without_id(item)
            case UnknownItem() if self._missing and not is_extension(item):
                lost.add(item.type, "its server takes it only with the thought that led to it")
                return None
            case _:
                return item

    def _thought(self, thought: Reasoning, lost: Lost) -> Item | None:
        """A thought that its server takes, wherever it leads."""
        maker = kept_text(thought, MAKER)
        sealed = bool(thought.encrypted_content)
        why = ""
        if maker is not None:
            why = f"made by {maker!r}, and for it alone"
        elif not (sealed or text_of(thought.content or ())):
            why = "not sealed, and its server keeps nothing that its id could name"
        self._linked, self._missing = sealed and not why, bool(why)
        if why:
            lost.add(thought.type, why)
            return None
        return clean(thought if sealed else _without_id(thought), lost)

    def _call(self, place: int, call: FunctionCall, lost: Lost) -> FunctionCall | None:
        if call.call_id in self._calls:
            lost.add(call.type, "a call beside it has its call id; left out")
            return None
        sent_as = legal_id(call.call_id, CALL_ID)
        while sent_as in self._taken or sent_as in self._own:
            sent_as = legal_id(f"{sent_as}_{place}", CALL_ID)
        self._own.add(sent_as)
        self._calls[call.call_id] = _Called(place, sent_as)
        name = legal_name(call.name, NAME, lost)
        blank = not call.arguments or call.arguments.isspace()
        if sent_as == call.call_id and name == call.name and not blank:
            return call
        arguments = "{}" if blank else call.arguments
        return replace(call, call_id=sent_as, name=name, arguments=arguments)


def _goes_on(item: Item) -> bool:
    """Whether an item belongs to a run: a model made it, or an application put it beside."""
    match item:
        case Message():
            return item.role == "assistant"
        case UnknownItem():
            return not item.type.endswith(("_output", "_response"))
        case _:
            return isinstance(item, Reasoning | FunctionCall | Compaction)


def _last_made(items: Sequence[Item | None]) -> int:
    """The place of the last item that a thought can have led to; -1 if there is none."""
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        if item is not None and not isinstance(item, Reasoning) and not is_extension(item):
            return index
    return -1


def _at(index: int) -> Lost:
    return Lost(f"input[{index}]")


# --- items without what is not for everybody -----------------------------------------


def _without_id(item: NamedT) -> NamedT:
    """An item without the id that a server would look up."""
    return item if item.id is ABSENT else replace(item, id=ABSENT)


def clean(item: Item, lost: Lost) -> Item | None:
    """An item without marks and parts of other providers; None if nothing is left of it."""
    item = without_marks(item, lost)
    match item:
        case Message(content=tuple() as parts):
            found = _parts(parts, lost, ".content")
            if parts and not found:
                return None
            return item if found is parts else replace(item, content=found)
        case FunctionCallOutput(output=tuple() as parts):
            found = _parts(parts, lost, ".output")
            return item if found is parts else replace(item, output=found or "")
        case Reasoning():
            summary = _parts(item.summary, lost, ".summary")
            content = _parts(item.content, lost, ".content") if item.content else item.content
            if summary is item.summary and content is item.content:
                return item
            return replace(item, summary=summary, content=content)
        case _:
            return item


def _parts(parts: tuple[Part, ...], lost: Lost, at: str) -> tuple[Part, ...]:
    """The parts; the same tuple if nothing had to go."""
    found: list[Part] = []
    for index, part in enumerate(parts):
        place = f"{at}[{index}]"
        if isinstance(part, UnknownPart) and is_makers(part.type):
            lost.add(part.type, f"only {slug_of(part.type)} takes it back", place)
            continue
        made = without_marks(part, lost, place)
        if isinstance(made, OutputText) and made.annotations:
            made = _annotated(made, lost, place)
        found.append(made)
    same = len(found) == len(parts) and all(a is b for a, b in zip(found, parts, strict=True))
    return parts if same else tuple(found)


def _annotated(part: OutputText, lost: Lost, at: str) -> OutputText:
    found: list[Annotation] = []
    for index, annotation in enumerate(part.annotations or ()):
        place = f"{at}.annotations[{index}]"
        if is_makers(annotation.type):
            lost.add(annotation.type, f"only {slug_of(annotation.type)} takes it back", place)
        else:
            found.append(without_marks(annotation, lost, place))
    before = part.annotations or ()
    same = len(found) == len(before) and all(a is b for a, b in zip(found, before, strict=True))
    return part if same else replace(part, annotations=tuple(found))
