"""One attempt at a model call: stream events in, item events out.

An attempt *commits* when the model begins its answer, that is when a message or a function call
opens. An item that was finished before, a thought, is *held*: it is shown as it comes and enters
the transcript when the attempt commits or the response arrives, so that an attempt that fails
leaves no orphan behind. A call *opens* under the one id it keeps.
"""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec

from perdure.loop.events import ItemEnd, ItemStart, ItemUpdate
from perdure.loop.item_view import ItemView, under
from perdure.loop.middleware import MessageInfo
from perdure.loop.pairing import twin_of, unstreamed
from perdure.loop.state import Drive
from perdure.wire import (
    Fold,
    FunctionCall,
    Item,
    Message,
    OutputItemAdded,
    OutputItemDone,
    Reasoning,
    Response,
    ResponseFailed,
    StreamEvent,
    UnknownEvent,
)


@dataclasses.dataclass(slots=True, eq=False)
class _Track:
    """One item of the stream."""

    opened: Item
    """As it opened."""
    call_id: str = ""
    """The id a call runs under; empty until it is decided."""
    shown: bool = False
    finished: bool = False


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class _Finished:
    """An item the model finished."""

    given: Item
    """As the model gave it."""
    item: Item
    """As it enters the transcript."""
    model_call_id: str = ""


class Attempt:
    """The state of one attempt."""

    def __init__(
        self, drive: Drive, model_name: str, guards: list[asyncio.Task[object]] | None = None
    ) -> None:
        self.fold = Fold()
        self.committed = False
        self.response_id = ""
        self._drive = drive
        self._model_name = model_name
        self._guards = guards or []
        self._tracks: dict[int | None, _Track] = {}
        self._finished: list[_Finished] = []
        self._held: list[_Finished] = []
        self._opened: set[str] = set()  # the ids the model gave calls
        self._twins: list[Item] = []  # calls that the model sent twice
        self._cut: tuple[Item, ...] | None = None  # what had begun when the response failed

    @property
    def calls(self) -> tuple[FunctionCall, ...]:
        """The calls that the model finished and the transcript holds."""
        held = {id(one) for one in self._held}
        items = (one.item for one in self._finished if id(one) not in held)
        return tuple(item for item in items if isinstance(item, FunctionCall))

    @property
    def taken(self) -> tuple[Item, ...]:
        """What the transcript took of the response."""
        held = {id(one) for one in self._held}
        return tuple(one.item for one in self._finished if id(one) not in held)

    async def feed(self, event: StreamEvent) -> None:
        """Take a stream event, and deliver what it means.

        Raises:
            Guard: A guard withholds the response.
        """
        if isinstance(event, ResponseFailed):
            self._cut = self.partial()  # its response may list nothing of it
        self.fold.feed(event)
        if not self.response_id:
            self.response_id = getattr(getattr(event, "response", None), "id", "")
        index = output_index(event)
        if index is None and not isinstance(event, UnknownEvent):
            return
        position = None if index is None else self.fold.position(index)
        match event:
            case OutputItemAdded(item=item) if item is not None:
                await self._open(position, item)
            case OutputItemDone(item=item) if item is not None:
                await self._finish(await self._open(position, item), item)
            case _:
                await self._update(event, position)

    async def close(self, response: Response) -> Response:
        """Take the response as its terminal event lists it: what was not streamed, what is held.

        Returns:
            The response with its calls as the transcript holds them.

        Raises:
            Guard: A guard withholds the response.
        """
        streamed = [*(one.given for one in self._finished), *self._twins]
        for item in unstreamed(response.output, streamed):
            track = self._begun(item) or await self._open(None, item)
            await self._finish(track, item)
        for guard in self._guards:
            await self._drive.signal.guard(asyncio.shield(guard))
        await self._release()
        return self._as_kept(response)

    def partial(self) -> tuple[Item, ...]:
        """What had begun and was not finished, marked incomplete."""
        if self._cut is not None:
            return self._cut
        begun = [
            (position, track)
            for position, track in self._tracks.items()
            if position is not None and track.shown and not track.finished
        ]
        items = [ItemView(self.fold, position, track.call_id).item() for position, track in begun]
        return tuple(_incomplete(item) for item in items if item is not None)

    async def _open(self, position: int | None, item: Item) -> _Track:
        track = self._tracks.get(position) if position is not None else None
        if track is not None:
            return track
        track = self._tracks[position] = _Track(item)
        if isinstance(item, Message | FunctionCall):
            self.committed = True
            await self._release_if_free()
        if isinstance(item, FunctionCall):
            if item.call_id and item.call_id in self._opened:
                return track  # whether it is the same call again shows when it is whole
            self._opened.add(item.call_id)
        await self._show(track, item)
        return track

    def _begun(self, item: Item) -> _Track | None:
        """The track of an item that the stream opened and the response alone finishes."""
        begun = [track for track in self._tracks.values() if not track.finished]
        opened = twin_of(item, [track.opened for track in begun])
        return next((track for track in begun if track.opened is opened), None)

    async def _finish(self, track: _Track, item: Item) -> None:
        if track.finished:
            return
        track.finished = True
        if isinstance(item, FunctionCall) and not track.shown and self._is_twin(item):
            self._twins.append(item)
            return
        if not track.shown:
            await self._show(track, item)
        await self._take(track, item)

    async def _show(self, track: _Track, item: Item) -> None:
        """Tell that an item opens; a call gets its id."""
        track.shown = True
        if isinstance(item, FunctionCall):
            track.call_id = self._drive.call_ids.name(item.call_id)
        await self._drive.delivery.deliver(
            ItemStart(
                run_id=self._drive.run_id,
                turn=self._drive.turn,
                item=under(item, track.call_id),
                response_id=self.response_id,
            )
        )

    async def _take(self, track: _Track, item: Item) -> None:
        finished = _Finished(given=item, item=under(item, track.call_id))
        if isinstance(item, FunctionCall) and item.call_id != track.call_id:
            finished.model_call_id = item.call_id
        if isinstance(item, Message) and item.role == "assistant":
            finished.item = await self._drive.hooks.on_message(item, self._info())
        self._finished.append(finished)
        self._held.append(finished)
        if self.committed:
            await self._release_if_free()

    async def _update(self, event: StreamEvent, position: int | None) -> None:
        track = self._tracks.get(position)
        if track is not None and not track.shown:
            return
        await self._drive.delivery.deliver(
            ItemUpdate(
                run_id=self._drive.run_id,
                turn=self._drive.turn,
                stream=event,
                view=ItemView(self.fold, position, track.call_id if track else ""),
                response_id=self.response_id,
            )
        )

    async def _release_if_free(self) -> None:
        """Let what is held into the transcript, unless a guard has still to speak."""
        for guard in self._guards:
            if not guard.done():
                return
            guard.result()
        await self._release()

    async def _release(self) -> None:
        held, self._held = self._held, []
        for one in held:
            self._drive.transcript.append(one.item)
            if isinstance(one.item, Reasoning):
                self._drive.transcript.attribute(one.item, self._model_name)
            await self._drive.delivery.deliver(
                ItemEnd(
                    run_id=self._drive.run_id,
                    turn=self._drive.turn,
                    item=one.item,
                    response_id=self.response_id,
                    model_call_id=one.model_call_id,
                )
            )

    def _info(self) -> MessageInfo:
        return MessageInfo(
            run_id=self._drive.run_id,
            turn=self._drive.turn,
            response_id=self.response_id,
            output=tuple(one.given for one in self._finished),
        )

    def _is_twin(self, item: FunctionCall) -> bool:
        """Whether a call of this response has the same id, name and arguments."""
        return any(
            (one.call_id, one.name, one.arguments) == (item.call_id, item.name, item.arguments)
            for one in self._given()
        )

    def _given(self) -> list[FunctionCall]:
        return [one.given for one in self._finished if isinstance(one.given, FunctionCall)]

    def _as_kept(self, response: Response) -> Response:
        """The response with its calls as the transcript holds them, each of them once."""
        calls = [one for one in self._finished if isinstance(one.given, FunctionCall)]
        if not self._twins and all(one.item is one.given for one in calls):
            return response
        output: list[Item] = []
        for item in response.output:
            if not isinstance(item, FunctionCall):
                output.append(item)
                continue
            twin = twin_of(item, [one.given for one in calls])
            kept = next((one for one in calls if one.given is twin or twin is None), None)
            if kept is not None:
                calls.remove(kept)
                output.append(kept.item)
        return msgspec.structs.replace(response, output=tuple(output))


def _incomplete(item: Item) -> Item:
    if hasattr(item, "status"):
        return msgspec.structs.replace(item, status="incomplete")
    return item


class _Indexed(msgspec.Struct):
    output_index: int | None = None


def output_index(event: StreamEvent) -> int | None:
    """The index an event names; one of an unknown type may name one, too (DESIGN 6.9)."""
    if not isinstance(event, UnknownEvent):
        return getattr(event, "output_index", None)
    try:
        return msgspec.json.decode(event.source.raw, type=_Indexed).output_index
    except msgspec.DecodeError:
        return None
