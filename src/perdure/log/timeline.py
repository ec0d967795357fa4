"""A session as lines that a person reads: one for each entry, or for each thing that happened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from perdure.log.context import item_of
from perdure.log.entries import (
    AckEntry,
    AnyEntry,
    BranchSummaryEntry,
    ChannelEntry,
    ClosedEntry,
    CompactionEntry,
    CompensationEntry,
    ConfigEntry,
    CustomEntry,
    DecisionEntry,
    DispatchEntry,
    EndEntry,
    EnvEntry,
    InfoEntry,
    ItemEntry,
    Json,
    LabelEntry,
    LinkEntry,
    NotStartedEntry,
    OutcomeEntry,
    OwedEntry,
    QueuedEntry,
    RefusedEntry,
    ReminderEntry,
    ResponseEntry,
    ResultEntry,
    RetryEntry,
    RunEntry,
    SagaEntry,
    SignalEntry,
    SpendEntry,
    StepEntry,
    TallyEntry,
    VoteEntry,
    WaitEntry,
)
from perdure.log.nested import shown_step, step_words
from perdure.log.timestamps import timestamp
from perdure.wire import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, text_of

SHORT_ID = 8
"""How many hexadecimal digits of an id are shown."""


def short_id(entry: str) -> str:
    """An id, shortened for people."""
    return entry.removeprefix("sha256:")[:SHORT_ID]


def item_line(item: Item) -> str:
    """An item in a few words."""
    match item:
        case Message():
            return f"{item.role}: {item.text}"
        case FunctionCall():
            return f"call {item.name}({item.arguments}) as {item.call_id}"
        case FunctionCallOutput():
            return f"output of {item.call_id}: {item.text}"
        case Reasoning():
            return f"thought: {text_of(item.summary)}"
        case _:
            return item.type or "an item of no type"


def entry_line(entry: AnyEntry) -> str:
    """An entry in a few words, without its id and time."""
    if entry.erased:
        return f"{entry.type}: erased"
    match entry:
        case ItemEntry():
            return _item(entry)
        case ResponseEntry():
            return _response(entry)
        case ConfigEntry():
            return _config(entry)
        case RunEntry():
            return _run(entry)
        case DispatchEntry():
            return _dispatch(entry)
        case DecisionEntry():
            return _decision(entry)
        case _:
            return _other(entry)


# --- what the format has -------------------------------------------------------------------------


def _item(entry: ItemEntry) -> str:
    marks = " (hidden)" if not entry.visible else ""
    if entry.terminate:
        marks += " (asks to end the drive)"
    return item_line(item_of(entry.item)) + marks


def _spend(entry: SpendEntry) -> str:
    tokens = f"{entry.tokens.total} tokens"
    model = f" of {entry.model}" if entry.model else ""
    if entry.phase == "reserve":
        return f"reserved: {tokens}{model}"
    if entry.phase == "child":
        ended = f" spent {entry.spend.tokens.total} tokens" if entry.spend is not None else " works"
        return f"the agent of {entry.call_id}{ended} in {entry.session}"
    if entry.came == "unsent":
        return "settled: the request was not sent"
    guess = "about " if entry.estimated else ""
    return f"settled: a request{model} {_CAME.get(entry.came, 'ended')}, and took {guess}{tokens}"


_CAME = {
    "answered": "was answered",
    "dropped": "was answered for nobody",
    "failed": "failed",
    "lost": "was lost",
    "refused": "was refused",
}


def _response(entry: ResponseEntry) -> str:
    words = [f"response of {entry.model or 'a model'}", entry.status]
    if entry.withheld:
        words.append("withheld by a guard")
    error = entry.error
    if isinstance(error, dict):
        words.append(str(cast("Json", error).get("message", "")))
    incomplete = entry.incomplete
    if isinstance(incomplete, dict):
        words.append(str(cast("Json", incomplete).get("reason", "")))
    if entry.usage:
        words.append(f"{entry.usage.get('total_tokens', '?')} tokens")
    if entry.attempts > 1:
        words.append(f"{entry.attempts} attempts")
    return ", ".join(word for word in words if word)


def _config(entry: ConfigEntry) -> str:
    added = [str(tool.get("name") or tool.get("type")) for tool in entry.tools_added]
    said = [
        f"tools {_names(added)}" if added else "",
        f"without {_names(entry.tools_removed)}" if entry.tools_removed else "",
        _left_out(entry),
    ]
    shown = {"tools_added", "tools_removed", "omit", "model", "replace"}
    members = entry.members.keys() - shown - _ENVELOPE
    said += sorted((members - {"extra"}) | entry.extra.keys())
    model = f" for {entry.model}" if isinstance(entry.model, str) else ""
    words = ", ".join(word for word in said if word)
    return f"settings{model}" + (f": {words}" if words else "")


_ENVELOPE = frozenset({"id", "parent", "parents", "ts", "type", "perdure:salt", "perdure:message"})


def _left_out(entry: ConfigEntry) -> str:
    omit = entry.omit if isinstance(entry.omit, dict) else {}
    items = omit.get("items")
    count = len(cast("list[object]", items)) if isinstance(items, list) else 0
    return f"{_count(count, 'item')} left out" if count else ""


def _run(entry: RunEntry) -> str:
    if entry.phase == "start":
        return f"drive {_drive(entry.run_id)} starts from {entry.source}{_ref(entry.ref)}"
    return end_line(entry.run_id, entry.reason, entry.ref, entry.pending)


def end_line(run_id: str, reason: str, cause: str, pending: Iterable[str]) -> str:
    """The end of a drive in a few words."""
    waits = ", ".join(pending)
    waiting = f", waiting: {waits}" if waits else ""
    return f"drive {_drive(run_id)} ends: {reason}{_ref(cause)}{waiting}"


def _drive(run_id: str) -> str:
    """A drive's name, shortened if it is one of perdure's."""
    digits = run_id.removeprefix("run_")
    long = len(digits) == 32 and all(digit in "0123456789abcdef" for digit in digits)
    return f"run_{digits[:SHORT_ID]}" if long else run_id


def _dispatch(entry: DispatchEntry) -> str:
    words = [f"dispatch of {entry.call_id}"]
    if entry.effect:
        words.append(f"effect {entry.effect}")
    if entry.effect == "keyed" and entry.idempotency_key:
        words.append(f"key {entry.idempotency_key}")
    return ", ".join(words)


def _decision(entry: DecisionEntry) -> str:
    by = _by(f"{entry.by} {entry.who}".strip())
    arguments = entry.arguments or bytes(entry.args).decode()
    rest = [
        _ref(entry.reason),
        f", with {arguments}" if arguments else "",
        f", on evidence {bytes(entry.evidence).decode()}" if bytes(entry.evidence) else "",
    ]
    if entry.suspended:
        return f"{entry.call_id} is suspended: it {wait_words(entry.wait or {})}"
    return f"decision on {entry.call_id}: {entry.verdict}{by}{''.join(rest)}"


def wait_words(wait: Json) -> str:
    """What a call does that its tool has suspended, as `perdure:wait` of its hold says."""
    due, waits = wait.get("due"), wait.get("waits")
    more = len(cast("list[object]", waits)) - 1 if isinstance(waits, list) else 0
    if more < 1:
        return _waits_for(wait, due)
    until = f", until {day_and_time(due)}" if isinstance(due, int) else ""
    return f"{_waits_for(wait, None)}, and waits for {more} more{until}"


def begin_words(begin: WaitEntry) -> str:
    """What a call does whose wait has begun."""
    said: Json = {
        "kind": begin.kind,
        "name": begin.name,
        "prompt": begin.prompt,
        "refused": begin.refused,
    }
    return _waits_for(said, begin.due)


def _waits_for(wait: Json, due: object) -> str:
    kind, name = wait.get("kind"), wait.get("name")
    until = f" until {day_and_time(due)}" if isinstance(due, int) else ""
    match kind:
        case "child":
            agent = f"its agent {shown_step(str(name))}" if name else "its agent"
            return f"waits for {agent}, which is {wait.get('status', 'busy')}"
        case "sleep":
            return f"sleeps{until} ({name})"
        case "signal":
            return f"waits for the signal {name}{until}"
        case "race":
            return f"waits for what comes first ({name})"
        case "channel":
            return f"waits for a message of {str(name).rpartition('#')[0] or name}"
        case "interrupt":
            prompt = wait.get("prompt")
            again = (
                f"; an answer was not taken: {refused}" if (refused := wait.get("refused")) else ""
            )
            return f"asks{until} ({name})" + (f": {prompt}" if prompt else "") + again
        case _:
            return f"waits for {kind} {name or ''}".rstrip() if kind else "waits"


def day_and_time(wall: int) -> str:
    """An instant, in nanoseconds since the Unix epoch, as people read it, to the second."""
    try:
        return f"{timestamp(wall)[:19].replace('T', ' ')} UTC"
    except OverflowError:
        return "a time that no calendar has"


def _other(entry: AnyEntry) -> str:
    match entry:
        case LabelEntry():
            return f"label {entry.label or 'taken back'} on {short_id(entry.target)}"
        case QueuedEntry():
            return f"queued as {entry.mode}: {item_line(item_of(entry.item))}"
        case CompactionEntry():
            kept = short_id(entry.first_kept)
            return f"folded up to {kept}: {item_line(item_of(entry.summary))}"
        case BranchSummaryEntry():
            return f"of branch {short_id(entry.from_)}: {item_line(item_of(entry.summary))}"
        case InfoEntry():
            return f"named {entry.name!r}"
        case EnvEntry():
            return f"works in {entry.cwd}" if entry.cwd else "works elsewhere"
        case OutcomeEntry():
            return f"judged {short_id(entry.target)}: {_outcome(entry)}"
        case LinkEntry(rel="subsession") if entry.call_id:
            return f"the agent of {entry.call_id} has session {entry.session}"
        case LinkEntry():
            return f"{entry.rel} {entry.session}"
        case CustomEntry(ns="perdure:model_retry"):
            return _model_retry(entry)
        case CustomEntry():
            return f"{entry.ns} {bytes(entry.data).decode()}"
        case _:
            return _of_runs(entry)


def _model_retry(entry: CustomEntry) -> str:
    """A request that failed and is sent again."""
    try:
        data = msgspec.json.decode(bytes(entry.data), type=_Retried)
    except msgspec.MsgspecError:  # somebody else wrote it
        return f"{entry.ns} {bytes(entry.data).decode()}"
    model = f" to {data.model}" if data.model else ""
    revised = ", changed" if data.revised else ""
    return f"attempt {data.attempt} failed, and is sent again{model}{revised}: {data.error}"


class _Retried(msgspec.Struct):
    attempt: int
    error: str
    model: str = ""
    revised: bool = False


def _outcome(entry: OutcomeEntry) -> str:
    passed = {True: "pass", False: "fail", None: ""}[entry.passed]
    score = "" if entry.score is None else f"{entry.score:g}"
    return " ".join(word for word in (entry.kind, entry.label, passed, score) if word)


# --- what perdure adds ---------------------------------------------------------------------------


def _of_runs(entry: AnyEntry) -> str:
    match entry:
        case EndEntry():
            waits = f": it {wait_words(entry.wait)}" if entry.wait else ""
            return f"end: {entry.reason}{_ref(entry.cause)}{waits}"
        case OwedEntry():
            return f"owed to the queues: {_count(len(entry.queued), 'input')}"
        case ClosedEntry():
            return f"closed: {entry.status}{_by(entry.who)}{_ref(entry.cause)}"
        case ResultEntry():
            return _result(entry)
        case SpendEntry():
            return _spend(entry)
        case RetryEntry():
            return f"told to go on{_by(entry.who)}{_ref(entry.reason)}"
        case NotStartedEntry():
            return f"{entry.call_id} did not start: {short_id(entry.target)} entered no tool"
        case RefusedEntry():
            kind = entry.message.partition("/")[0]
            return f"refused{f' to {kind}' if kind in _TOLD else ''}: {entry.reason}"
        case _:
            return _of_calls(entry)


_TOLD = frozenset({"decide", "resolve", "settle", "retry", "cancel", "vote"})
"""What people ask for, as the ids of their messages begin."""


def _of_calls(entry: AnyEntry) -> str:
    match entry:
        case StepEntry():
            return _step(entry)
        case WaitEntry():
            return _waits(entry)
        case SignalEntry():
            return f"signal {entry.name}{_by(entry.who)}: {bytes(entry.value).decode()}"
        case ChannelEntry():
            value = bytes(entry.value).decode()
            return f"message {entry.key} of {entry.channel}{_by(entry.who)}: {value}"
        case SagaEntry():
            return _saga(entry)
        case CompensationEntry():
            return _compensation(entry)
        case AckEntry():
            return f"{entry.call_id or 'it'} is done with message {entry.key} of {entry.channel}"
        case VoteEntry() | TallyEntry() | ReminderEntry():
            return _of_votes(entry)
        case _:
            return entry.type


def _of_votes(entry: VoteEntry | TallyEntry | ReminderEntry) -> str:
    match entry:
        case VoteEntry():
            signed = ", signed" if entry.signature else ""
            return f"{entry.approver} votes to {entry.verdict} {entry.call_id}{signed}" + _ref(
                entry.reason
            )
        case TallyEntry():
            names = entry.denied_by if entry.outcome == "denied" else entry.approved_by
            left = f", {_count(len(entry.uncounted), 'vote')} not counted" * bool(entry.uncounted)
            return f"{entry.call_id} is {entry.outcome}{_by(', '.join(names))}{left}"
        case ReminderEntry():
            return f"reminder {entry.number} that {entry.call_id} waits for votes"


def _step(entry: StepEntry) -> str:
    of = f"step {step_words(entry)}" + (f" of {entry.call_id}" if entry.call_id else "")
    effect = f", effect {entry.effect}" if entry.effect else ""
    if entry.phase == "start":
        return f"{of} starts{effect}"
    evidence = bytes(entry.evidence).decode()
    said = f", says {entry.who}" if entry.who else ""
    said += f", on evidence {evidence}" if evidence else ""
    if entry.phase == "void":
        return f"{of} never ran{said}"
    if entry.error:
        return f"{of} failed: {entry.error}{said}"
    return f"{of} gave {bytes(entry.result).decode() or 'nothing'}{said}"


def _saga(entry: SagaEntry) -> str:
    about = f" {entry.call_id}" if entry.call_id else ""
    says = f", says {entry.who}" if entry.who else ""
    match entry.phase:
        case "tripped":
            return f"the saga is tripped: {entry.cause}"
        case "cancelled":
            return f"the saga is cancelled{_by(entry.who)}: {entry.cause}"
        case "failed":
            return f"{entry.call_id} failed too: {entry.cause}"
        case "never_ran":
            return f"{entry.call_id} never ran{says}{_ref(entry.cause)}"
        case "halted":
            return f"the rollback halts on{about}: {entry.cause}"
        case "stopped":
            return f"the rollback stops: {entry.cause}"
        case "resumed":
            return "the rollback goes on"
        case "undone":
            return "nothing is left to be undone"
        case _:
            return f"saga: {entry.phase}{about}"


def _compensation(entry: CompensationEntry) -> str:
    of = f"{entry.tool} {entry.call_id}" + (f" ({entry.step})" if entry.step else "")
    if entry.phase == "start":
        return f"undoing {of}"
    if entry.phase == "settled":
        word = "was undone by hand" if entry.verdict == "compensated" else "is left as it is"
        return f"{of} {word}{f', says {entry.who}' if entry.who else ''}{_ref(entry.reason)}"
    return f"{of} could not be undone: {entry.error}" if entry.error else f"{of} is undone"


def _waits(entry: WaitEntry) -> str:
    call, name = entry.call_id or "it", entry.name
    if entry.phase == "begin":
        return f"{call} {begin_words(entry)}"
    value = bytes(entry.value).decode()
    match entry.outcome:
        case "due":
            return f"{call} has slept ({name})"
        case "signal":
            return f"{call} has the signal {name}: {value}"
        case "message":
            return f"{call} has a message ({name})"
        case "won":
            return f"{call} has what came first ({name}): {value}"
        case "timeout":
            return f"{call} waited in vain for the signal {name}"
        case "answer" if entry.kind == "child":
            return f"{call} has the answer of its agent {name}: {value}"
        case "failed":
            return f"{call} is told that its agent {name} failed: {value}"
        case "answer":
            return f"{call} is answered ({name}){_by(entry.who)}: {value}"
        case _:
            return f"{call} has waited ({name})"


def _result(entry: ResultEntry) -> str:
    output = item_of(entry.output) if bytes(entry.output) else None
    text = output.text if isinstance(output, FunctionCallOutput) else ""
    return f"result of {entry.call_id}, before its place: {text}"


# --- words ---------------------------------------------------------------------------------------


def _ref(ref: str) -> str:
    return f" ({ref})" if ref else ""


def _by(who: str) -> str:
    return f" by {who}" if who else ""


def _names(names: Iterable[str]) -> str:
    return " ".join(names)


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
