"""The lines by which a person reads a session."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from perdure.log.entries import TYPES, AnyEntry, UnknownEntry
from perdure.log.teller import Teller
from perdure.log.timeline import entry_line
from tests.log.building import Built, message

DRIVE = "run_0123456789abcdef0123456789abcdef"
TARGET = "sha256:" + "ab" * 32
DUE = 1_790_856_000_250_000_000
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}

LINES: list[tuple[str, Mapping[str, object], str]] = [
    ("item", {"item": message("hello")}, "user: hello"),
    ("item", {"item": OUTPUT, "visible": False}, "output of c1: ok (hidden)"),
    (
        "item",
        {"item": OUTPUT, "perdure:terminate": True},
        "output of c1: ok (asks to end the drive)",
    ),
    ("response", {"model": "m", "status": "completed"}, "response of m, completed"),
    (
        "response",
        {"status": "completed", "perdure:withheld": True, "usage": {"total_tokens": 3}},
        "response of a model, completed, withheld by a guard, 3 tokens",
    ),
    (
        "response",
        {"status": "incomplete", "incomplete": {"reason": "max_output_tokens"}},
        "response of a model, incomplete, max_output_tokens",
    ),
    (
        "response",
        {"status": "failed", "error": {"message": "no"}},
        "response of a model, failed, no",
    ),
    (
        "config",
        {"model": "m", "tools_added": [{"name": "a"}, {"type": "web"}], "tools_removed": ["b"]},
        "settings for m: tools a web, without b",
    ),
    ("config", {"omit": {"items": [TARGET]}}, "settings: 1 item left out"),
    ("config", {"extra": {"x": 1}, "instructions": "Be brief."}, "settings: instructions, x"),
    ("config", {"replace": True}, "settings"),
    (
        "run",
        {"run_id": DRIVE, "phase": "start", "source": "input"},
        "drive run_01234567 starts from input",
    ),
    (
        "run",
        {"run_id": "r", "phase": "end", "reason": "error", "ref": "cut off", "pending": ["c1"]},
        "drive r ends: error (cut off), waiting: c1",
    ),
    ("dispatch", {"call_id": "c1"}, "dispatch of c1"),
    (
        "dispatch",
        {"call_id": "c1", "idempotency_key": "k", "perdure:effect": "once"},
        "dispatch of c1, effect once",
    ),
    (
        "dispatch",
        {"call_id": "c1", "idempotency_key": "k", "perdure:effect": "keyed"},
        "dispatch of c1, effect keyed, key k",
    ),
    ("decision", {"call_id": "c1", "verdict": "proceed"}, "decision on c1: proceed"),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "answer",
            "by": "human",
            "reason": "seen",
            "perdure:who": "ann",
            "perdure:evidence": {"ledger": ["ch_1"]},
        },
        'decision on c1: answer by human ann (seen), on evidence {"ledger":["ch_1"]}',
    ),
    (
        "decision",
        {"call_id": "c1", "verdict": "proceed", "args": {"a": 1}, "perdure:arguments": '{"a": 1}'},
        'decision on c1: proceed, with {"a": 1}',
    ),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "hold",
            "by": "policy",
            "perdure:suspended": True,
            "perdure:wait": {"kind": "child", "session": "s2", "status": "halted"},
        },
        "c1 is suspended: it waits for its agent, which is halted",
    ),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "hold",
            "perdure:suspended": True,
            "perdure:wait": {"kind": "sleep", "name": "tonight", "due": DUE},
        },
        "c1 is suspended: it sleeps until 2026-10-01 12:00:00 UTC (tonight)",
    ),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "hold",
            "perdure:suspended": True,
            "perdure:wait": {"kind": "signal", "name": "paid"},
        },
        "c1 is suspended: it waits for the signal paid",
    ),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "hold",
            "perdure:suspended": True,
            "perdure:wait": {
                "kind": "interrupt",
                "name": "age",
                "prompt": "How old?",
                "schema": {"type": "integer"},
            },
        },
        "c1 is suspended: it asks (age): How old?",
    ),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "hold",
            "perdure:suspended": True,
            "perdure:wait": {"kind": "channel", "name": "orders#2#1"},
        },
        "c1 is suspended: it waits for a message of orders#2",
    ),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "hold",
            "perdure:suspended": True,
            "perdure:wait": {
                "kind": "interrupt",
                "name": "age",
                "prompt": "Old?",
                "waits": [{"kind": "interrupt", "name": "age"}, {"kind": "sleep", "name": "n"}],
                "due": DUE,
            },
        },
        "c1 is suspended: it asks (age): Old?, and waits for 1 more, until 2026-10-01 12:00:00 UTC",
    ),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "hold",
            "perdure:suspended": True,
            "perdure:wait": {"kind": "interrupt", "name": "age"},
        },
        "c1 is suspended: it asks (age)",
    ),
    (
        "decision",
        {
            "call_id": "c1",
            "verdict": "hold",
            "perdure:suspended": True,
            "perdure:wait": {"kind": "acme:rain"},
        },
        "c1 is suspended: it waits for acme:rain",
    ),
    (
        "decision",
        {"call_id": "c1", "verdict": "hold", "perdure:suspended": True},
        "c1 is suspended: it waits",
    ),
    ("queued", {"item": message("more"), "mode": "steer"}, "queued as steer: user: more"),
    ("label", {"target": TARGET, "label": "good"}, "label good on abababab"),
    ("label", {"target": TARGET, "label": None}, "label taken back on abababab"),
    ("info", {"name": "x"}, "named 'x'"),
    ("env", {"cwd": "/srv"}, "works in /srv"),
    (
        "outcome",
        {"kind": "test", "target": TARGET, "pass": True, "score": 0.5},
        "judged abababab: test pass 0.5",
    ),
    ("link", {"rel": "child", "session": "s2"}, "child s2"),
    (
        "link",
        {"rel": "subsession", "session": "s2", "call_id": "c1"},
        "the agent of c1 has session s2",
    ),
    ("custom", {"ns": "acme:x", "data": {"a": 1}}, 'acme:x {"a":1}'),
    ("custom", {"ns": "perdure:model_retry", "data": [1]}, "perdure:model_retry [1]"),
    (
        "custom",
        {"ns": "perdure:model_retry", "data": {"attempt": 1, "error": "no", "model": "m"}},
        "attempt 1 failed, and is sent again to m: no",
    ),
    (
        "compaction",
        {"first_kept": TARGET, "summary": message("short")},
        "folded up to abababab: user: short",
    ),
    (
        "branch_summary",
        {"from": TARGET, "summary": message("left")},
        "of branch abababab: user: left",
    ),
    ("perdure:end", {"reason": "stopped", "cause": "max_turns"}, "end: stopped (max_turns)"),
    ("perdure:owed", {"queued": [TARGET]}, "owed to the queues: 1 input"),
    ("perdure:closed", {"status": "done"}, "closed: done"),
    (
        "perdure:closed",
        {"status": "cancelled", "cause": "not wanted", "who": "cy"},
        "closed: cancelled by cy (not wanted)",
    ),
    ("perdure:retry", {"who": "bo", "reason": "once more"}, "told to go on by bo (once more)"),
    ("perdure:retry", {}, "told to go on"),
    (
        "perdure:not_started",
        {"call_id": "c1", "target": TARGET, "fence": "f"},
        "c1 did not start: abababab entered no tool",
    ),
    (
        "perdure:refused",
        {"reason": "the run is over", "perdure:message": "resolve/x"},
        "refused to resolve: the run is over",
    ),
    ("perdure:refused", {"reason": "nobody knows"}, "refused: nobody knows"),
    *(
        ("perdure:spend", {"tokens": {"input": 100, "output": 20, "total": 120}, **more}, line)
        for more, line in (
            ({"phase": "reserve", "model": "m"}, "reserved: 120 tokens of m"),
            (
                {"phase": "settle", "model": "m", "came": "lost", "estimated": True},
                "settled: a request of m was lost, and took about 120 tokens",
            ),
            (
                {"phase": "settle", "came": "failed"},
                "settled: a request failed, and took 120 tokens",
            ),
            ({"phase": "settle", "came": "unsent"}, "settled: the request was not sent"),
            ({"phase": "child", "call_id": "c1", "session": "s2"}, "the agent of c1 works in s2"),
            (
                {
                    "phase": "child",
                    "call_id": "c1",
                    "session": "s2",
                    "spend": {"tokens": {"total": 7}},
                },
                "the agent of c1 spent 7 tokens in s2",
            ),
        )
    ),
    (
        "perdure:step",
        {"call_id": "c1", "name": "mail", "phase": "start", "effect": "once"},
        "step mail of c1 starts, effect once",
    ),
    (
        "perdure:step",
        {
            "call_id": "c1",
            "name": "perdure:invoke/mail/0123456789abcdef/1",
            "phase": "start",
            "arguments": '{ "to": "ann" }',
        },
        'step perdure:invoke/mail/0123456789abcdef/1 (mail {"to":"ann"}) of c1 starts',
    ),
    (
        "perdure:step",
        {"call_id": "c1", "name": "mail", "phase": "end", "effect": "once", "result": {"id": 7}},
        'step mail of c1 gave {"id":7}',
    ),
    (
        "perdure:step",
        {"call_id": "c1", "name": "mail", "phase": "end", "error": "declined"},
        "step mail of c1 failed: declined",
    ),
    (
        "perdure:step",
        {
            "call_id": "c1",
            "name": "mail",
            "phase": "void",
            "perdure:who": "ann",
            "perdure:evidence": ["outbox"],
        },
        'step mail of c1 never ran, says ann, on evidence ["outbox"]',
    ),
    *(
        (
            "perdure:wait",
            {"call_id": "c1", "phase": "begin", "kind": kind, "name": "n", **due},
            line,
        )
        for kind, due, line in (
            ("sleep", {"due": DUE}, "c1 sleeps until 2026-10-01 12:00:00 UTC (n)"),
            ("sleep", {"due": 10**30}, "c1 sleeps until a time that no calendar has (n)"),
            ("signal", {}, "c1 waits for the signal n"),
            ("channel", {}, "c1 waits for a message of n"),
            ("interrupt", {"prompt": "How old?"}, "c1 asks (n): How old?"),
            ("acme:rain", {}, "c1 waits for acme:rain n"),
        )
    ),
    *(
        (
            "perdure:wait",
            {"call_id": "c1", "phase": "end", "kind": "k", "name": "n", "outcome": outcome, **more},
            line,
        )
        for outcome, more, line in (
            ("due", {}, "c1 has slept (n)"),
            ("signal", {"value": [5]}, "c1 has the signal n: [5]"),
            ("message", {}, "c1 has a message (n)"),
            ("timeout", {}, "c1 waited in vain for the signal n"),
            ("answer", {"value": 41, "perdure:who": "ann"}, "c1 is answered (n) by ann: 41"),
        )
    ),
    (
        "perdure:signal",
        {"name": "paid", "value": {"cents": 5}, "perdure:who": "bank"},
        'signal paid by bank: {"cents":5}',
    ),
    (
        "perdure:channel",
        {"channel": "orders", "key": "7", "value": [1], "perdure:who": "shop"},
        "message 7 of orders by shop: [1]",
    ),
    (
        "perdure:ack",
        {"call_id": "c1", "target": TARGET, "channel": "orders", "key": "7"},
        "c1 is done with message 7 of orders",
    ),
    (
        "perdure:vote",
        {"call_id": "c1", "approver": "ann", "verdict": "approve", "signature": "ed25519:x"},
        "ann votes to approve c1, signed",
    ),
    (
        "perdure:vote",
        {"call_id": "c1", "approver": "bo", "verdict": "deny", "reason": "too much"},
        "bo votes to deny c1 (too much)",
    ),
    (
        "perdure:tally",
        {"call_id": "c1", "outcome": "approved", "approved_by": ["ann", "bo"]},
        "c1 is approved by ann, bo",
    ),
    (
        "perdure:tally",
        {"call_id": "c1", "outcome": "denied", "denied_by": ["bo"], "uncounted": [{}]},
        "c1 is denied by bo, 1 vote not counted",
    ),
    ("perdure:tally", {"call_id": "c1", "outcome": "expired"}, "c1 is expired"),
    (
        "perdure:reminder",
        {"call_id": "c1", "number": 2},
        "reminder 2 that c1 waits for votes",
    ),
    (
        "perdure:result",
        {"call_id": "c1", "target": TARGET, "output": OUTPUT},
        "result of c1, before its place: ok",
    ),
    (
        "perdure:saga",
        {"phase": "tripped", "call_id": "c1", "target": TARGET, "cause": "ship failed: no"},
        "the saga is tripped: ship failed: no",
    ),
    (
        "perdure:saga",
        {"phase": "cancelled", "cause": "changed my mind", "perdure:who": "ann"},
        "the saga is cancelled by ann: changed my mind",
    ),
    (
        "perdure:saga",
        {"phase": "failed", "call_id": "c2", "target": TARGET, "cause": "ship failed: no"},
        "c2 failed too: ship failed: no",
    ),
    (
        "perdure:saga",
        {"phase": "never_ran", "call_id": "c2", "target": TARGET, "perdure:who": "ann"},
        "c2 never ran, says ann",
    ),
    (
        "perdure:saga",
        {"phase": "halted", "call_id": "c1", "cause": "not run again: replay unknown"},
        "the rollback halts on c1: not run again: replay unknown",
    ),
    ("perdure:saga", {"phase": "stopped", "cause": "no"}, "the rollback stops: no"),
    ("perdure:saga", {"phase": "resumed"}, "the rollback goes on"),
    ("perdure:saga", {"phase": "undone"}, "nothing is left to be undone"),
    ("perdure:saga", {"phase": "later", "call_id": "c1"}, "saga: later c1"),
    (
        "perdure:compensation",
        {"call_id": "c1", "tool": "charge", "phase": "start"},
        "undoing charge c1",
    ),
    (
        "perdure:compensation",
        {
            "call_id": "c1",
            "tool": "charge",
            "step": "perdure:invoke/charge/0123456789abcdef/1",
            "phase": "end",
        },
        "charge c1 (perdure:invoke/charge/0123456789abcdef/1) is undone",
    ),
    (
        "perdure:compensation",
        {"call_id": "c1", "tool": "charge", "phase": "end", "error": "no"},
        "charge c1 could not be undone: no",
    ),
    (
        "perdure:compensation",
        {
            "call_id": "c1",
            "tool": "charge",
            "phase": "settled",
            "verdict": "compensated",
            "perdure:who": "ann",
        },
        "charge c1 was undone by hand, says ann",
    ),
    (
        "perdure:compensation",
        {
            "call_id": "c1",
            "tool": "charge",
            "phase": "settled",
            "verdict": "left",
            "reason": "too old",
        },
        "charge c1 is left as it is (too old)",
    ),
    ("acme:thing", {"a": 1}, "acme:thing"),
]


def entry(kind: str, body: Mapping[str, object]) -> AnyEntry:
    built = Built()
    built.add(kind, body, under=None)
    return built.session.entries[-1]


@pytest.mark.parametrize(("kind", "body", "line"), LINES, ids=[line for *_, line in LINES])
def test_each_entry_is_told_in_a_few_words(
    kind: str, body: Mapping[str, object], line: str
) -> None:
    assert entry_line(entry(kind, body)) == line


def test_every_type_of_entry_has_words_of_its_own() -> None:
    told = {kind for kind, *_ in LINES}
    assert told >= TYPES
    unknown = {kind for kind, *_ in LINES if isinstance(entry(kind, {}), UnknownEntry)}
    assert unknown == {"acme:thing"}


def test_the_end_of_a_drive_is_told_once_with_the_reason_of_the_loop() -> None:
    built = Built()
    built.start("r")
    built.add("perdure:end", {"run_id": "r", "reason": "stopped", "cause": "max_turns"})
    built.end("r")
    teller = Teller()
    told = [teller.tell(one) for one in built.session.entries]
    assert told == ["drive r starts from input", "", "drive r ends: stopped (max_turns)"]


HOLD: dict[str, object] = {"call_id": "c", "verdict": "hold", "by": "policy"}
SLEEPS: dict[str, object] = {
    "perdure:suspended": True,
    "perdure:wait": {"kind": "sleep", "name": "night"},
}
ASKS: dict[str, object] = {
    "perdure:suspended": True,
    "perdure:wait": {"kind": "interrupt", "status": "input_required"},
}

ENDS: dict[str, tuple[list[tuple[str, dict[str, object]]], str, str]] = {
    "a call is held": ([("decision", HOLD)], "input_required", "input_required"),
    "a call sleeps": ([("decision", HOLD | SLEEPS)], "input_required", "suspended"),
    "a call asks": ([("decision", HOLD | ASKS)], "input_required", "input_required"),
    "a call may have run": (
        [("dispatch", {"call_id": "c", "perdure:effect": "once"})],
        "input_required",
        "halted",
    ),
    "a saga is tripped": (
        [("perdure:saga", {"phase": "tripped", "cause": "no seats"})],
        "aborted",
        "the saga is to be rolled back",
    ),
    "somebody stops it": ([], "aborted", "aborted"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_of_a_drive_says_how_its_calls_stand(case: str) -> None:
    before, reason, told = ENDS[case]
    built = Built()
    built.start("r")
    for kind, body in before:
        built.add(kind, body)
    built.add("perdure:end", {"run_id": "r", "reason": reason})
    built.add("run", {"run_id": "r", "phase": "end", "reason": reason, "pending": ["c"]})
    teller = Teller()
    last = [teller.tell(one) for one in built.session.entries][-1]
    assert last == f"drive r ends: {told}, waiting: c"


def test_the_end_that_a_crash_left_is_told_as_the_format_has_it() -> None:
    built = Built()
    built.start("r")
    built.add("perdure:end", {"run_id": "r", "reason": "done"})
    built.end("r", reason="error")
    teller = Teller()
    assert [teller.tell(one) for one in built.session.entries][-1] == "drive r ends: error"
