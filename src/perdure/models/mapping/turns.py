"""A transcript as the turns that some providers want: the user's and the assistant's, by turns.

A *turn* is one message of the provider's, made of the pieces that stand together. It is *settled*
when the next has begun: it is encoded once then, and kept in the memo of the transcript's list
(DESIGN 7). What pieces are, and how a provider writes both, stands in `forms`.

The rules that hold by construction (DESIGN 6.1): the user's turn after calls has one result for
each, in their order; what is missing is said to be, what is too much is left out; call ids are
distinct; no turn is empty, and neighbours have different roles.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from perdure.loop.transcript import Items
from perdure.models.http.body import Body
from perdure.models.mapping.forms import (
    NO_OUTPUT,
    Answered,
    Call,
    Form,
    Kind,
    Piece,
    Result,
    Role,
    Turn,
)
from perdure.models.mapping.losses import Loss, Lost
from perdure.wire import FunctionCall, FunctionCallOutput, Item


class Settled(NamedTuple):
    """What is remembered of a turn that is done, beside its message.

    Attributes:
        role: Whose it was.
        calls: The calls in it.
        first: The kind of its first piece; None if it had none, but results alone.
        lost: How many losses there are up to its end.
    """

    role: Role
    calls: Mapping[str, Call]
    first: Kind | None
    lost: int


class Turns:
    """The turns of one transcript list in one form, as far as they were asked for."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._reader = _Reader(form, {}, None)
        self._seen = 0
        self.settled: list[Settled] = []
        self.losses: list[Loss] = []  # of the settled turns
        self.fragments: list[bytes] = []
        self.lengths: list[int] = [0]  # how many bytes the first n fragments are
        self.variants: dict[int, bytes] = {}  # of some turns, with the comma before it
        self.spoken: list[int] = []  # the user's turns that are more than results
        self.current: list[bytes] = []  # the fragments, or variants since the user last spoke
        self.surplus = 0  # how many bytes these are more
        self._ends: list[int] = []  # of each turn, the place of the item that began the next
        self.leading: list[tuple[int, Piece]] = []
        self.names: dict[str, int] = {}

    @classmethod
    def of(cls, items: Items, key: Hashable, form: Form) -> View:
        """What a snapshot shows. Items that its list was asked for before are not looked at."""
        held = cast("Turns | None", items.memo.get(key))
        if held is None:
            held = items.memo[key] = cls(form)
        held._grow(items)
        return held._view(items)

    def _grow(self, items: Items) -> None:
        reader = self._reader
        for index in range(self._seen, len(items)):
            turn = reader.take(index, items[index])
            if turn is not None:
                self._settle(turn, index)
            if reader.leading is not None:
                self.leading.append((index, reader.leading))
            if reader.call is not None:
                self.names.setdefault(reader.call.name, index)
        self._seen = max(self._seen, len(items))

    def _settle(self, turn: Turn, end: int) -> None:
        index = len(self.settled)
        lost = self._reader.done
        raw, variant = _render(self._form, turn, lost)
        comma = b"," if index else b""
        self.fragments.append(comma + raw)
        self.lengths.append(self.lengths[-1] + len(self.fragments[-1]))
        self._ends.append(end)
        self.current.append(self.fragments[-1])
        if variant is not None:
            self.variants[index] = self.current[-1] = comma + variant
            self.surplus += len(variant) - len(raw)
        if turn.role == "user" and turn.pieces:
            since = self.spoken[-1] if self.spoken else 0
            self.current[since:] = self.fragments[since:]
            self.surplus = 0
            self.spoken.append(index)
        first = turn.pieces[0].kind if turn.pieces else None
        self.losses += lost.all
        self.settled.append(Settled(turn.role, turn.calls, first, len(self.losses)))

    def _view(self, items: Items) -> View:
        """A shorter snapshot cuts one turn, which is read again."""
        count = bisect_right(self._ends, len(items))
        reader = self._reader
        if len(items) < self._seen:
            before = self.settled[count - 1] if count else None
            reader = _Reader(self._form, reader.taken, before)
            for index in range(self._ends[count - 1] if count else 0, len(items)):
                reader.take(index, items[index])
        return View(self, self._form, count, reader, len(items))


class Seen(NamedTuple):
    """What the settings have to know of the turns.

    Attributes:
        system: The blocks that the system says before them.
        names: The functions that are called in them, in order; none if nobody asked.
        calls_without_thought: Whether the last calls come without the thought before them.
    """

    system: Sequence[bytes]
    names: Sequence[str]
    calls_without_thought: bool


class View:
    """The turns of a snapshot.

    Attributes:
        system: The blocks that the system says before the first turn.
    """

    def __init__(self, turns: Turns, form: Form, count: int, reader: _Reader, length: int) -> None:
        self._turns = turns
        self._form = form
        self._count = count
        self._open = reader.turn
        self._lost = reader.lost.all
        leading = [piece for index, piece in turns.leading if index < length]
        self.system = [block for piece in leading for block in piece.blocks]
        self._length = length

    @property
    def first(self) -> Role | None:
        """Whose turn is the first; None if there is none."""
        if self._count:
            return self._turns.settled[0].role
        return self._open.role if self._open is not None else None

    def seen(self, *, names: bool) -> Seen:
        """What the settings have to know of the turns.

        Args:
            names: Whether they have to know the functions that are called.
        """
        called = self._turns.names.items() if names else ()
        return Seen(
            system=self.system,
            names=[name for name, index in called if index < self._length],
            calls_without_thought=self._calls_without_thought,
        )

    @property
    def _calls_without_thought(self) -> bool:
        """Whether the assistant's last turn makes calls and does not begin with a thought."""
        turns = self._turns.settled[max(0, self._count - 2) : self._count]
        if self._open is not None and self._open.role == "assistant":
            return bool(self._open.calls) and self._open.pieces[0].kind != "thought"
        last = next((one for one in reversed(turns) if one.role == "assistant"), None)
        return last is not None and bool(last.calls) and last.first != "thought"

    def between(self, head: bytes, tail: bytes) -> Body:
        """A body of `head`, the turns, and `tail`."""
        turns, count = self._turns, self._count
        length = len(head) + turns.lengths[count] + len(tail)
        if turns.surplus and count == len(turns.settled) and not self._user_speaks:
            fragments = [head, *turns.current]
            length += turns.surplus
        else:
            fragments = [head, *turns.fragments[:count]]
            for index, raw in self._variants():
                length += len(raw) - len(fragments[index + 1])
                fragments[index + 1] = raw
        for raw, variant in self._last(Lost()):
            comma = b"," if len(fragments) > 1 else b""
            fragments.append(comma + (raw if variant is None else variant))
            length += len(fragments[-1])
        fragments.append(tail)
        return Body(fragments, length)

    def losses(self) -> list[Loss]:
        """What was lost of the items."""
        lost = Lost()
        for _ in self._last(lost):
            pass
        settled = self._turns.settled[self._count - 1].lost if self._count else 0
        return [*self._turns.losses[:settled], *self._lost, *lost.all]

    @property
    def _user_speaks(self) -> bool:
        """Whether the open turn is the user's, and more than results."""
        return self._open is not None and self._open.role == "user" and bool(self._open.pieces)

    def _variants(self) -> list[tuple[int, bytes]]:
        """The settled turns since the user last spoke that have to be written otherwise."""
        turns, count = self._turns, self._count
        if not turns.variants or self._user_speaks:
            return []
        at = bisect_right(turns.spoken, count - 1)
        since = turns.spoken[at - 1] if at else -1
        return [(index, raw) for index, raw in turns.variants.items() if since < index < count]

    def _last(self, lost: Lost) -> list[tuple[bytes, bytes | None]]:
        """The turn that is open, and the results that nobody gave yet."""
        calls: Mapping[str, Call] = {}
        if self._count:
            calls = self._turns.settled[self._count - 1].calls
        rendered: list[tuple[bytes, bytes | None]] = []
        if self._open is not None:
            rendered.append(_render(self._form, self._open, lost))
            calls = self._open.calls
        if calls:
            rendered.append(_render(self._form, Turn("user", calls), lost))
        return rendered


class _Reader:
    """Puts items into turns, one after the other.

    Attributes:
        taken: The call ids that are sent, each with the place of its first call.
        turn: The turn that is open.
        lost: What was lost in the open turn.
        done: What was lost in the turn before.
        leading: What the last item gave, if it is the system's and before all turns.
        call: What the last item was, if it is a call that is sent.
    """

    def __init__(self, form: Form, taken: dict[str, int], before: Settled | None) -> None:
        self._form = form
        self._begun = before is not None
        self._before: Mapping[str, Call] = before.calls if before is not None else {}
        self.taken = taken
        self.turn: Turn | None = None
        self.lost = Lost()
        self.done = Lost()
        self.leading: Piece | None = None
        self.call: FunctionCall | None = None

    def take(self, index: int, item: Item) -> Turn | None:
        """Read an item; the turn that it ends, if it does."""
        self.leading = self.call = None
        self.lost.at = f"input[{index}]"
        if isinstance(item, FunctionCallOutput):
            return self._answer(index, item)
        if isinstance(item, FunctionCall):
            if self.turn is not None and item.call_id in self.turn.calls:
                self.lost.add(item.type, "a call beside it has its call id; left out")
                return None
            self.call = self._named(index, item)
        lost = self._relative()
        piece = self._form.piece(self.call or item, lost)
        if piece is None or not piece.blocks:
            self.lost.all += lost.all
            return None
        if piece.kind == "system" and not self._begun:
            self.lost.all += lost.all
            self.leading = piece
            return None
        ended, turn = self._turn(piece.role)
        self.lost.all += lost.all
        turn.pieces.append(piece._replace(at=lost.at))
        if self.call is not None and isinstance(item, FunctionCall):
            turn.calls[item.call_id] = Call(self.call, index)
        return ended

    def _relative(self) -> Lost:
        """What an item loses, until it is known which turn it belongs to."""
        lost = Lost()
        lost.at = self.lost.at
        return lost

    def _named(self, index: int, call: FunctionCall) -> FunctionCall:
        """The call under the id that is sent: legal, and nobody else's."""
        sent = self._form.call_id(call.call_id)
        if self.taken.setdefault(sent, index) != index:
            sent = self._form.call_id(f"{sent}_{index}")
        return call if sent == call.call_id else replace(call, call_id=sent)

    def _turn(self, role: Role) -> tuple[Turn | None, Turn]:
        """The turn that ends, and the turn of this role."""
        ended = self.turn
        if ended is not None and ended.role == role:
            return None, ended
        before = self._before if ended is None else ended.calls
        self._begun = True
        self.turn = Turn(role, before if role == "user" else {})
        if ended is not None:
            self.done, self.lost = self.lost, self._relative()
        return ended, self.turn

    def _answer(self, index: int, output: FunctionCallOutput) -> Turn | None:
        """Put an output to its call."""
        opened = self.turn
        if opened is None or opened.role == "assistant":
            calls = self._before if opened is None else opened.calls
            known, answered = output.call_id in calls, False
        else:
            found = opened.owed.get(output.call_id)
            known, answered = found is not None, found is not None and found.output is not None
        if not known or answered:
            why = "its call has an output already" if answered else "no call just before it"
            self.lost.add(output.type, f"{why} ({output.call_id!r}); left out")
            return None
        ended, turn = self._turn("user")
        call = turn.owed[output.call_id].call
        turn.owed[output.call_id] = Answered(call, output, index)
        return ended


def _render(form: Form, turn: Turn, lost: Lost) -> tuple[bytes, bytes | None]:
    results: list[Result] = []
    for answered in turn.owed.values():
        lost.at = f"input[{answered.place}]"
        if answered.output is None:
            lost.add(answered.call.type, f"it has no output; {NO_OUTPUT!r} is sent as one")
        results.append(form.result(answered, lost))
    variant = form.variant(turn) if turn.role == "assistant" else None
    return form.message(turn, results, lost), variant
