"""A session written entry by entry, for tests of what is read from it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.log.entries import AnyEntry
from perdure.log.header import Header, new_header
from perdure.log.path import View
from perdure.log.reading import read_session
from perdure.log.session import Session
from perdure.log.timestamps import timestamp
from perdure.log.verify import Fault
from perdure.log.writing import Draft, seal

START = 1_790_000_000 * 10**9


def message(text: str, role: str = "user") -> dict[str, object]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


class Built:
    """Appends under the leaf, or wherever a test says."""

    def __init__(self, header: Header | None = None, entries: list[AnyEntry] | None = None) -> None:
        self.header = header or new_header("session", "2026-10-01T12:00:00Z")
        self.session = Session(self.header, entries or ())
        self._count = len(self.session)
        self._calls: dict[str, str] = {}

    def add(
        self, type_: str, body: Mapping[str, object] | None = None, *, under: str | None = "leaf"
    ) -> str:
        parent = self.session.leaf if under == "leaf" else under
        self._count += 1
        entry = seal(Draft(type_, body or {}), parent, timestamp(START + self._count * 10**6))
        assert self.session.take(entry)
        return entry.id

    # --- shorthands ----------------------------------------------------------------

    def config(self, **members: object) -> str:
        return self.add("config", members or {"model": "m"})

    def item(self, item: Mapping[str, object], **members: object) -> str:
        return self.add("item", {"item": item, **members})

    def user(self, text: str = "go", **members: object) -> str:
        return self.item(message(text), **members)

    def call(self, call_id: str, response: str = "resp_1", arguments: str = "{}") -> str:
        item = {"type": "function_call", "call_id": call_id, "name": "t", "arguments": arguments}
        self._calls[call_id] = self.item(item, response=response)
        return self._calls[call_id]

    def answer(self, text: str = "done", response: str = "resp_1") -> str:
        return self.item(message(text, "assistant"), response=response)

    def response(self, response: str = "resp_1", **members: object) -> str:
        return self.add("response", {"response_id": response, "status": "completed", **members})

    def output(self, call_id: str, text: str = "ok", **members: object) -> str:
        item = {"type": "function_call_output", "call_id": call_id, "output": text}
        return self.item(item, **members)

    def dispatch(self, call_id: str, key: str = "", **members: object) -> str:
        body = {"call_id": call_id, "target": self._calls[call_id], **members}
        return self.add("dispatch", {**body, "idempotency_key": key} if key else body)

    def decide(self, call_id: str, verdict: str, **members: object) -> str:
        body = {"call_id": call_id, "target": self._calls[call_id], "verdict": verdict}
        return self.add("decision", {**body, **members})

    def start(self, run_id: str = "run_1", source: str = "input") -> str:
        return self.add("run", {"run_id": run_id, "phase": "start", "source": source})

    def end(self, run_id: str = "run_1", reason: str = "", pending: list[str] | None = None) -> str:
        """The end of a run; recomputed if a test does not say."""
        view = self.session.at()
        if not reason and view.drives.open:
            found, reason = view.drives.verdict(view.drives.open, view.calls)
            pending = list(found)
        body = {"run_id": run_id, "phase": "end", "reason": reason, "pending": pending or []}
        return self.add("run", body)

    def rewind(self, entry: str) -> str:
        return self.add("label", {"target": entry, "label": "leaf"})

    # --- what is read ----------------------------------------------------------------

    @property
    def data(self) -> bytes:
        lines = [self.header.line, *(entry.line for entry in self.session.entries)]
        return b"".join(line + b"\n" for line in lines)

    @property
    def faults(self) -> tuple[Fault, ...]:
        return read_session(self.data).faults

    @property
    def view(self) -> View:
        return self.session.at()

    def state(self, call_id: str) -> str:
        call = self.view.calls.named(call_id)
        assert call is not None
        return call.state


def texts(view: View) -> list[str]:
    """The items of a context, shortly."""
    shown = []
    for item in view.context.items:
        raw = msgspec.to_builtins(item)
        content = raw.get("content") or raw.get("summary") or raw.get("output") or ""
        shown.append(content if isinstance(content, str) else content[0]["text"])
    return shown
