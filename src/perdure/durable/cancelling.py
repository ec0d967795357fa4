"""Cancelling a run: its open calls are closed, and then the run is (LOG 9)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from msgspec import Raw

from perdure.clock import Ids
from perdure.durable.messages import Cancel
from perdure.durable.state import CUT
from perdure.log import Call, Draft, Filters, Listed, Message, Recording, Store, View, go_on
from perdure.log.entries import MESSAGE, Json
from perdure.log.nested import shown_step
from perdure.log.work import CHILD, Step
from perdure.loop.answers import CHECK_FIRST
from perdure.loop.decisions import Decider
from perdure.wire import encode, function_call_output

CANCELLED = "cancelled"

NOT_RUN = "Error: not run: the run was cancelled"
"""What stands as the output of a call that a cancel closed before it ran."""

UNKNOWN = f"Error: the run was cancelled, and the outcome of this call is unknown. {CHECK_FIRST}"
"""The same of a call that may have run."""

WAITED = "Error: the run was cancelled while this call waited"
"""The same of a call that waited: nothing of it ran, and its record has what it had done."""


class Words(NamedTuple):
    """What is said of calls that are closed."""

    cause: str
    not_run: str
    """The output of a call that did not run."""
    ran: str
    """The same of a call that may have run."""
    waited: str
    """The same of one that waited; what it had done before is told behind it."""
    by: Decider


OF_CANCEL = Words(CANCELLED, NOT_RUN, UNKNOWN, WAITED, by="human")


async def cancel_run(recording: Recording, message: Message, told: Cancel, *, ids: Ids) -> None:
    """Close a run for good, as the stop that waits in its inbox asks."""
    close_calls(recording, ids, OF_CANCEL)
    members = {"status": CANCELLED, "cause": told.reason, "who": told.who, MESSAGE: message.id}
    await recording.append(Draft("perdure:closed", {n: v for n, v in members.items() if v}))


def saga_cancelled(message: Message, told: Cancel) -> Draft:
    """What a stop does to a saga: it is rolled back first, and closed as cancelled (LOG 9)."""
    said = {"perdure:who": told.who, MESSAGE: message.id}
    body: Json = {"phase": CANCELLED, "cause": told.reason or CANCELLED}
    return Draft("perdure:saga", body | {name: value for name, value in said.items() if value})


async def cancel_children(recording: Recording, *, ids: Ids) -> None:
    """Close every session below a root that is not over, the last made first."""
    root = recording.session.id
    below = [listed.id async for listed in tree_of(recording.store, root) if listed.id != root]
    for child in reversed(below):
        open_child = await go_on(recording.store, child, ids=ids, held=recording.held)
        if open_child.view.closed is None:
            close_calls(open_child, ids, OF_CANCEL)
            await open_child.append(Draft("perdure:closed", {"status": CANCELLED}))


async def tree_of(store: Store, root: str) -> AsyncIterator[Listed]:
    """The sessions under the lease of a root, itself among them."""
    after = ""
    while True:
        page = await store.list(Filters(root=root), after=after)
        for listed in page.sessions:
            yield listed
        if not page.after:
            return
        after = page.after


def close_calls(recording: Recording, ids: Ids, words: Words) -> None:
    """Close the open calls, in a drive of their own, which decisions need (LOG 3.6)."""
    view = recording.view
    if not view.calls.open:
        return
    run_id = ids.new("run_")
    start: Json = {"run_id": run_id, "phase": "start", "source": "resume"}
    calls = [draft for call in view.calls.open.values() for draft in _closed(view, call, words)]
    _ = recording.recorder.appender.add([Draft("run", start), *calls])
    _ = recording.recorder.appender.add(lambda view: _end(view, run_id, words.cause))


def _closed(view: View, call: Call, words: Words) -> list[Draft]:
    """The end of a call: by answer if it was dispatched, else by reject (LOG 5.3)."""
    ran = bool(call.dispatches or call.elsewhere)
    text = (_waited(view, call, words) or words.ran) if ran else words.not_run
    said = Raw(encode(function_call_output(call.call_id, text)))
    output = Draft("item", {"item": call.landed or said})
    if call.state in ("rejected", "answered"):
        return [output]
    decision = Draft(
        "decision",
        {
            "call_id": call.call_id,
            "target": call.entry,
            "verdict": "answer" if ran else "reject",
            "by": words.by,
            "reason": words.cause,
        },
    )
    return [decision, output]


def _waited(view: View, call: Call, words: Words) -> str:
    """What is known of a call whose tool was left for a wait; empty if that is not all it did."""
    work = view.work.of(call.entry)
    unsure = call.wait.get("kind") == CHILD and (
        call.wait.get("status") == "halted" or bool(call.wait.get(CUT))
    )
    if not call.suspended or unsure or any(step.is_open for step in work.steps.values()):
        return ""
    taken = [shown_step(name) for name, step in work.steps.items() if _happened(step)]
    done = f" Before that it had done: {', '.join(taken)}." if taken else ""
    return f"{words.waited}.{done}"


def _happened(step: Step) -> bool:
    return step.end is not None and not step.end.error


def _end(view: View, run_id: str, cause: str) -> Sequence[Draft]:
    pending: Sequence[str] = ()
    reason: str = "aborted"
    if view.drives.open is not None:
        pending, reason = view.drives.verdict(view.drives.open, view.calls)
    told = {"run_id": run_id, "reason": "aborted", "cause": cause}
    end = {
        "run_id": run_id,
        "phase": "end",
        "reason": reason,
        "pending": list(pending),
        "ref": cause,
    }
    return [Draft("perdure:end", told), Draft("run", end)]
