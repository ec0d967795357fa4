"""A checker of sessions that knows the format's core and nothing of perdure.

It is written from the format's rules with the standard library alone, so that what perdure writes
is judged by something that shares no line with what wrote it.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

TS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,8}[1-9])?Z")
ENVELOPE = ("id", "type", "parent", "parents", "ts")

Json = dict[str, Any]


def jcs(value: object) -> str:
    """Canonical JSON, for what the tests record: no number here needs another form."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{jcs(name)}:{jcs(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(jcs, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def digest(value: object) -> str:
    return "sha256:" + hashlib.sha256(jcs(value).encode()).hexdigest()


class Checker:
    """Reads a session whose entries follow one another without a branch."""

    def __init__(self, data: bytes) -> None:
        self.faults: list[str] = []
        self.hashes = 0
        header, *lines = [json.loads(line) for line in data.split(b"\n") if line]
        self.records: list[str] = header.get("records", [])
        self.settings: Json = {}
        self.items: list[tuple[str, Json, str]] = []  # entry, item, model that thought it
        self.every: list[tuple[str, Json, str]] = []  # the same, those that were folded among them
        self.omitted: set[str] = set()
        self.others = False
        self.calls: dict[str, Json] = {}  # by entry
        self.run: Json | None = None
        self.last: Json | None = None
        leaf: str | None = None
        for entry in lines:
            self.envelope(entry, leaf)
            self.take(entry)
            leaf = entry["id"]

    def fault(self, entry: Json, why: str) -> None:
        self.faults.append(f"{entry['type']} {entry['id'][7:15]}: {why}")

    def envelope(self, entry: Json, leaf: str | None) -> None:
        body = {name: value for name, value in entry.items() if name not in ENVELOPE}
        shown = {name: entry[name] for name in ENVELOPE[1:] if entry.get(name)}
        named = {**shown, "parent": entry["parent"], "content": digest(body)}
        if digest(named) != entry["id"]:
            self.fault(entry, "its id is not its hash")
        if entry["parent"] != leaf:
            self.fault(entry, "it does not follow the leaf")
        if not TS.fullmatch(entry["ts"]):
            self.fault(entry, "its time is spelled otherwise")

    def take(self, entry: Json) -> None:
        handler = getattr(self, f"on_{entry['type']}", None)
        if handler is not None:
            handler(entry)

    # --- context -------------------------------------------------------------------------

    def on_config(self, entry: Json) -> None:
        before: Json = {} if entry.get("replace") else self.settings
        now = dict(before)
        now |= {n: entry[n] for n in ("model", "instructions", "reasoning", "text") if n in entry}
        gone = {*entry.get("tools_removed", ()), *(t["name"] for t in entry.get("tools_added", ()))}
        tools = [tool for tool in before.get("tools", []) if tool["name"] not in gone]
        now["tools"] = [*tools, *entry.get("tools_added", ())]
        extra = {**before.get("extra", {}), **entry.get("extra", {})}
        now["extra"] = {name: value for name, value in extra.items() if value is not None}
        self.settings = now
        omit = entry.get("omit")
        if entry.get("replace"):
            self.others, self.omitted = False, set()
        if omit is not None:
            self.others = omit.get("reasoning") == "other_models"
            self.omitted |= set(omit.get("items", ()))

    def on_compaction(self, entry: Json) -> None:
        full = entry["config"]
        self.settings = {name: value for name, value in full.items() if name != "omit"}
        omit = full.get("omit", {})
        self.others = omit.get("reasoning") == "other_models"
        self.omitted = set(omit.get("items", ()))
        places = [place for place, one in enumerate(self.every) if one[0] == entry["first_kept"]]
        if not places:
            self.fault(entry, "what it keeps first is no item of the path")
            return
        folded = [jcs(one[1] | {"\0response": ""}) for one in self.every[: places[0]]]
        for item in entry.get("pinned", ()):
            if jcs(item | {"\0response": ""}) not in folded:
                self.fault(entry, "it pins what was never said")
        own = [(entry["id"], item, "") for item in (entry["summary"], *entry.get("pinned", ()))]
        self.items = [*own, *self.every[places[0] :]]

    def request(self, response: str) -> Json:
        items = list(self.items)
        while items and response and items[-1][1].get("\0response") == response:
            items.pop()
        model = self.settings.get("model")
        shown = [
            {name: value for name, value in item.items() if name != "\0response"}
            for entry, item, thinker in items
            if entry not in self.omitted and not (self.others and thinker not in ("", model))
        ]
        given = {n: v for n, v in self.settings.items() if n != "extra" and v}
        return {**given, **self.settings.get("extra", {}), "input": shown, "store": False}

    def on_response(self, entry: Json) -> None:
        self.last = entry
        if self.run is not None:
            self.run["response"] = entry
        if "request_hash" in entry:
            self.hashes += 1
            if digest(self.request(entry.get("response_id", ""))) != entry["request_hash"]:
                self.fault(entry, "the path does not rebuild its request")

    # --- calls ---------------------------------------------------------------------------

    def on_item(self, entry: Json) -> None:
        item = dict(entry["item"])
        thinker = self.settings.get("model", "") if item["type"] == "reasoning" else ""
        said = (entry["id"], {**item, "\0response": entry.get("response", "")}, thinker)
        self.items.append(said)
        self.every.append(said)
        if item["type"] == "function_call":
            if any(call["id"] == item["call_id"] for call in self.calls.values()):
                self.fault(entry, "its call_id stands twice")
            self.calls[entry["id"]] = {"id": item["call_id"], "said": [], "output": False}
            self.touch(item["call_id"], made=True)
        if item["type"] == "function_call_output":
            (call,) = [c for c in self.calls.values() if c["id"] == item["call_id"]]
            ended = call["said"][-1:] in (["reject"], ["answer"])
            if "dispatch" in self.records and not ended and "dispatch" not in call["said"]:
                self.fault(entry, "an output without a dispatch, which the header promises")
            call["output"] = True
            self.touch(call["id"], did=True)

    def on_decision(self, entry: Json) -> None:
        call, verdict = self.calls[entry["target"]], entry["verdict"]
        if call["output"] or call["said"][-1:] in (["reject"], ["answer"]):
            self.fault(entry, "the call has ended")
        if verdict == "reject" and ("dispatch" in call["said"] or not entry.get("reason")):
            self.fault(entry, "a reject after a dispatch, or without a reason")
        if verdict == "answer" and "dispatch" not in call["said"]:
            self.fault(entry, "an answer without a dispatch")
        call["said"].append(verdict)
        self.touch(call["id"], did=True)

    def on_dispatch(self, entry: Json) -> None:
        call = self.calls[entry["target"]]
        if call["output"] or call["said"][-1:] in (["reject"], ["answer"]):
            self.fault(entry, "the call has ended")
        if call["id"] != entry["call_id"]:
            self.fault(entry, "it names another call")
        call["said"].append("dispatch")
        self.touch(call["id"], did=True)

    # --- runs ----------------------------------------------------------------------------

    def touch(self, call_id: str, *, made: bool = False, did: bool = False) -> None:
        if self.run is None:
            return
        self.run["calls"].setdefault(call_id)
        if did and "first" not in self.run:
            self.run["first"] = call_id
        self.run["did"] = self.run["did"] or did

    def on_run(self, entry: Json) -> None:
        if entry["phase"] == "start":
            if self.run is not None:
                self.fault(entry, "runs do not nest")
            before = {c["id"] for c in self.calls.values() if not c["output"]}
            self.run = {"start": entry, "calls": {}, "did": False, "pending": before}
            return
        run, self.run = self.run, None
        if run is None or run["start"]["run_id"] != entry["run_id"]:
            self.fault(entry, "it ends no run")
            return
        resumed = run.get("first") in run["pending"]
        if run["calls"] and run["start"]["source"] != ("resume" if resumed else "input"):
            self.fault(entry, f"the run's source is {run['start']['source']}")
        by_id = {call["id"]: call for call in self.calls.values()}
        pending = [one for one in by_id if one in run["calls"] and not by_id[one]["output"]]
        if sorted(entry["pending"]) != sorted(pending):
            self.fault(entry, f"pending is {pending}")
        reason = self.reason(run, [by_id[one] for one in pending])
        if entry["reason"] not in (reason, "error", "interrupted"):
            self.fault(entry, f"the reason is {reason}, not {entry['reason']}")

    def reason(self, run: Json, pending: list[Json]) -> str:
        last = run.get("response")
        held = [c for c in pending if c["said"][-1:] == ["hold"]]
        flying = [c for c in pending if c["said"][-1:] != ["hold"] and "dispatch" in c["said"]]
        if last is not None and last.get("error"):
            return "error"
        if held and not flying:
            return "input_required"
        if pending or (last is not None and last.get("incomplete")):
            return "aborted"
        if last is not None and not self.has_calls(last):
            return "done"
        answered = all(call["output"] for call in self.calls.values())
        if self.last is not None and self.has_calls(self.last) and answered and run["did"]:
            return "stopped"
        return "aborted"

    def has_calls(self, response: Json) -> bool:
        name = response.get("response_id")
        return any(
            item["type"] == "function_call" and name and item["\0response"] == name
            for _, item, _ in self.every
        )
