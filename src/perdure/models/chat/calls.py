"""The calls of an answer, put in order while their pieces come.

Most servers finish a call before they begin the next; some write several at a time, some give all
of them one index, and some give no ids. Events need one call after the other: a call opens when the
one before it is whole, and what comes for it earlier waits.
"""

from __future__ import annotations

from typing import cast

from perdure.errors import DecodeError
from perdure.models.chat.chunks import CallDelta, Members
from perdure.models.mapping.texts import json_text, object_text
from perdure.models.mapping.writer import Writer
from perdure.wire import StreamEvent
from perdure.wire.marks import MAKER, SIGNATURE


class _Call:
    """A call on its way."""

    __slots__ = ("id", "marks", "name", "opened", "pieces")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.marks: dict[str, object] = {}
        self.opened = False

    def arguments(self) -> str:
        """The arguments as far as they have come."""
        return "".join(self.pieces)

    def is_whole(self) -> bool:
        """Whether the arguments are a JSON object."""
        arguments = self.arguments()
        return bool(arguments.strip()) and object_text(arguments) is not None

    def copy(self) -> _Call:
        """The call in the same state."""
        twin = _Call()
        twin.id, twin.name, twin.pieces = self.id, self.name, self.pieces.copy()
        twin.marks, twin.opened = self.marks, self.opened
        return twin


class Calls:
    """The calls of one answer.

    Args:
        maker: Who made them.
    """

    __slots__ = ("_all", "_by_index", "_maker", "_open", "_opened")

    def __init__(self, maker: str) -> None:
        self._maker = maker
        self._all: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._open: _Call | None = None  # the one whose arguments are being written
        self._opened = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, delta: CallDelta, writer: Writer, events: list[StreamEvent]) -> None:
        """Take a piece of a call.

        Raises:
            DecodeError: It belongs to a call that has ended.
        """
        call = self._find(delta)
        function = delta.function
        if delta.id and not call.opened:
            call.id = delta.id
        if function is not None and function.name and not call.opened:
            call.name = function.name
        self._sign(call, delta, writer)
        given = function.arguments if function is not None else None
        piece = json_text(given).decode() if isinstance(given, dict) else given or ""
        if piece and call.opened and call is not self._open:
            raise DecodeError(f"arguments for a call that has ended: {call.name!r}")
        if call is self._open:
            events += writer.arguments(piece)
        call.pieces.append(piece)
        self._open_next(writer, events, last=False)

    def close(self) -> None:
        """Something else has opened: the open call gets no more arguments."""
        self._open = None

    def finish(self, writer: Writer, events: list[StreamEvent]) -> None:
        """Write the calls that waited.

        Raises:
            DecodeError: One has no name.
        """
        self._open_next(writer, events, last=True)

    def copy(self) -> Calls:
        """The calls in the same state."""
        twin = Calls(self._maker)
        twins = {id(call): call.copy() for call in self._all}
        twin._all = [twins[id(call)] for call in self._all]
        twin._by_index = {index: twins[id(call)] for index, call in self._by_index.items()}
        twin._open = twins[id(self._open)] if self._open is not None else None
        twin._opened = self._opened
        return twin

    def _find(self, delta: CallDelta) -> _Call:
        """The call that a piece belongs to; a new one if it begins one."""
        if delta.index is not None:
            call = self._by_index.get(delta.index)
        else:
            call = self._all[-1] if self._all else None
        if call is None or _is_another(delta, call):
            call = _Call()
            self._all.append(call)
            if delta.index is not None:
                self._by_index[delta.index] = call
        return call

    def _sign(self, call: _Call, delta: CallDelta, writer: Writer) -> None:
        signature = _signature(delta.extra_content or {})
        if signature is None:
            return
        call.marks = {MAKER: self._maker, SIGNATURE: signature}
        if call is self._open:
            writer.mark(call.marks)

    def _open_next(self, writer: Writer, events: list[StreamEvent], *, last: bool) -> None:
        while self._opened < len(self._all):
            before, call = self._open, self._all[self._opened]
            whole = before is None or before.is_whole()
            if not last and not (whole and call.name):
                return
            if not call.name:
                raise DecodeError("a call has no name")
            events += writer.call(call.name, call.id or None)
            writer.mark(call.marks)
            events += writer.arguments(call.arguments())
            call.opened = True
            self._open = call
            self._opened += 1


def _is_another(delta: CallDelta, call: _Call) -> bool:
    """Whether a piece begins a call though its index, or the want of one, names another."""
    function = delta.function
    if function is None or not function.name:
        return False
    if delta.id:
        return call.id not in {"", delta.id}
    return bool(function.arguments) and call.is_whole()


def _signature(extra: Members) -> str | None:
    """Google's signature of the thought behind a call."""
    google = extra.get("google")
    signature = cast("Members", google).get("thought_signature") if isinstance(google, dict) else ""
    return signature if isinstance(signature, str) and signature else None
