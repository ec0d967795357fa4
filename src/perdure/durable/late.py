"""What a driver knows of its own dispatches and cannot write down any more (LOG 3.4).

It goes to the inbox, addressed to the dispatch: whoever drives next takes it as the output, unless
the record says otherwise by then. So a charge that took longer than its lease is known, not lost.
What cannot even be put is kept in this process and put before it drives that session again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakKeyDictionary

from msgspec import Raw

from perdure.durable.messages import Late, NotStarted, message_of
from perdure.errors import LogError
from perdure.log import Recording, Session, Store
from perdure.log.recorder import Known
from perdure.tools import ToolResult
from perdure.wire import encode, function_call_output

_unsent: WeakKeyDictionary[Store, list[tuple[Session, Late | NotStarted]]] = WeakKeyDictionary()
_sending: set[asyncio.Task[None]] = set()


async def report_unrecorded(recording: Recording) -> None:
    """Tell the inbox what the recorder of a drive knows and could not write."""
    for known in recording.recorder.unrecorded():
        await _send(recording, _told(known, recording.lease.fence.nonce))


async def send_again(store: Store) -> None:
    """Put what could not be put before."""
    for session, told in _unsent.pop(store, []):
        await _put(store, session, told)


def late_sink(recording: Recording) -> Callable[[str, ToolResult], None]:
    """Takes what an abandoned tool gave, for `Recording.on_late`."""

    def sink(call_id: str, result: ToolResult) -> None:
        dispatch = recording.recorder.dispatch_of(call_id)
        if not dispatch:
            return
        output = function_call_output(call_id, result.output)
        told = Late(call_id=call_id, dispatch=dispatch, item=Raw(encode(output)))
        task = asyncio.get_running_loop().create_task(
            _send(recording, told), name=f"perdure-late-{call_id}"
        )
        _sending.add(task)
        task.add_done_callback(_sending.discard)

    return sink


async def sent() -> None:
    """Wait until every late result of this process was put, or could not be."""
    while _sending:
        await asyncio.wait(set(_sending))


async def _send(recording: Recording, told: Late | NotStarted) -> None:
    await _put(recording.store, recording.session, told)


async def _put(store: Store, session: Session, told: Late | NotStarted) -> None:
    try:
        await store.put(session.id, message_of(told, session))
    except LogError:
        _unsent.setdefault(store, []).append((session, told))


def _told(known: Known, fence: str) -> Late | NotStarted:
    dispatch = known.dispatch.id
    if known.output is None:
        return NotStarted(call_id=known.call_id, dispatch=dispatch, fence=fence)
    item = Raw(encode(known.output))
    return Late(call_id=known.call_id, dispatch=dispatch, item=item, failure=known.failure)
