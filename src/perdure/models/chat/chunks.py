"""What Chat Completions servers send, as records: chunks of a stream, and whole answers.

A chunk's `delta` and an answer's `message` are one shape. Members that stand in no record are given
beside it: they are the service's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

import msgspec

from perdure.errors import DecodeError
from perdure.models.mapping.kept import as_unknown
from perdure.wire import (
    ABSENT,
    Absent,
    Annotation,
    InputTokensDetails,
    Kept,
    LogProb,
    OutputTokensDetails,
    Source,
    TopLogProb,
    UnknownAnnotation,
    UrlCitation,
    Usage,
    with_unknown,
)
from perdure.wire.jsontext import loads

Members = dict[str, object]


class FunctionDelta(msgspec.Struct, gc=False):
    """A function's name, and a piece of its arguments."""

    name: str | None = None
    arguments: str | Members | None = None


class CallDelta(msgspec.Struct, gc=False):
    """A piece of a call."""

    index: int | None = None
    id: str | None = None
    function: FunctionDelta | None = None
    extra_content: Members | None = None


class Delta(msgspec.Struct, forbid_unknown_fields=True):
    """A piece of an answer, or all of it."""

    role: str | None = None
    content: str | list[Members] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[Members] | None = None
    refusal: str | None = None
    annotations: list[Members] | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: FunctionDelta | None = None
    audio: Members | None = None
    channel: str | None = None  # Groq's; it says what `reasoning` says already


class Choice(msgspec.Struct):
    """One answer of perhaps several."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    logprobs: Members | None = None
    error: object = None


class Chunk(msgspec.Struct):
    """What one frame, or a whole body, holds."""

    choices: list[Choice] | None = None
    id: str | None = None
    model: str | None = None
    created: int | float | None = None
    service_tier: str | None = None
    usage: Members | None = None
    error: object = None
    kind: str | None = msgspec.field(default=None, name="object")


class Read(NamedTuple):
    """A chunk, and the members of its delta that no record has."""

    chunk: Chunk
    extra: Members


_NOTHING: Members = {}
_decode = msgspec.json.Decoder(Chunk).decode


def read_chunk(data: bytes) -> Read:
    """What a frame or a body holds.

    Raises:
        DecodeError: It is no JSON, or none that any of these servers sends.
    """
    try:
        return Read(_decode(data), _NOTHING)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _read_slowly(data)


def _read_slowly(data: bytes) -> Read:
    """Set aside what no record has, and try once more. Keeps lone surrogates."""
    value = loads(data)
    extra: Members = {}
    for choice in _objects(object_of(value).get("choices")):
        for name in ("delta", "message"):
            members = object_of(choice.get(name))
            for unknown in members.keys() - _DELTA:
                extra[unknown] = members.pop(unknown)
    try:
        return Read(msgspec.convert(value, Chunk), extra)
    except msgspec.ValidationError as error:
        raise DecodeError(str(error), source=data) from None


_DELTA = frozenset(Delta.__struct_fields__)
_CHUNK = frozenset(Chunk.__struct_encode_fields__)
_CHOICE = frozenset(Choice.__struct_fields__)


def beside(data: bytes) -> Members:
    """The members of a chunk and of its choice that no record has, without those that are null."""
    value = object_of(loads(data))
    found = {name: member for name, member in value.items() if name not in _CHUNK}
    for choice in _objects(value.get("choices")):
        found |= {name: member for name, member in choice.items() if name not in _CHOICE}
    return {name: member for name, member in found.items() if member is not None}


def object_of(value: object) -> Members:
    """The members of an object; none if it is none."""
    return cast("Members", value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[Members]:
    return (
        [object_of(one) for one in cast("list[object]", value)] if isinstance(value, list) else []
    )


def merged(old: object, new: object) -> object:
    """Two pieces of a member that no record has, as one.

    Elements of lists go together by their `index`; data and transcripts are continued; of the rest,
    what comes last stands.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        both = dict(cast("Members", old))
        for name, member in cast("Members", new).items():
            there = both.get(name)
            if name in _CONTINUED and isinstance(there, str) and isinstance(member, str):
                both[name] = there + member
            else:
                both[name] = merged(there, member) if name in both else member
        return both
    if isinstance(old, list) and isinstance(new, list):
        return _merged_lists(cast("list[object]", old), cast("list[object]", new))
    return new


_CONTINUED = frozenset({"data", "transcript"})


def _merged_lists(old: list[object], new: list[object]) -> list[object]:
    both = list(old)
    places = {object_of(one).get("index"): place for place, one in enumerate(both)}
    for one in new:
        place = places.get(object_of(one).get("index")) if "index" in object_of(one) else None
        if place is None:
            both.append(one)
        else:
            both[place] = merged(both[place], one)
    return both


# --- usage -------------------------------------------------------------------------------


def usage_of(given: Members) -> Usage | None:
    """The tokens of an answer; None if it counts neither input nor output.

    Some services leave what was thought out of the output tokens: it is output, as the total says,
    or as more thought than output does. What no wire type has stays beside the counts, as a cost.

    Raises:
        DecodeError: A count is negative.
    """
    prompt, completion = _count(given, "prompt_tokens"), _count(given, "completion_tokens")
    if prompt is None and completion is None:
        return None
    prompt, completion = prompt or 0, completion or 0
    hidden = max(0, (_count(given, "total_tokens") or 0) - prompt - completion)
    thought = _count(object_of(given.get("completion_tokens_details")), "reasoning_tokens") or 0
    if thought > completion + hidden:
        hidden = thought
    return Usage(
        input_tokens=prompt,
        output_tokens=completion + hidden,
        total_tokens=prompt + completion + hidden,
        input_tokens_details=_input_details(given, prompt),
        output_tokens_details=_output_details(given, hidden),
        kept=rest_of(given, *_COUNTS),
    )


def _input_details(given: Members, prompt: int) -> InputTokensDetails | Absent:
    before = object_of(given.get("prompt_tokens_details"))
    cached = _count(before, "cached_tokens")
    for name in ("prompt_cache_hit_tokens", "num_cached_tokens"):
        cached = _count(given, name) if cached is None else cached
    written = _count(before, "cache_write_tokens") or 0
    # Google's caches are read and written at once, by OpenRouter's count; a token counts once.
    apart = (cached or 0) + written <= prompt
    rest = rest_of(before, "cached_tokens", *(["cache_write_tokens"] if apart else []))
    if cached is None and not written and not rest:
        return ABSENT
    created = written if apart and written else ABSENT
    return InputTokensDetails(cached_tokens=cached or 0, cache_creation_tokens=created, kept=rest)


def _output_details(given: Members, hidden: int) -> OutputTokensDetails | Absent:
    after = object_of(given.get("completion_tokens_details"))
    thought, rest = _count(after, "reasoning_tokens"), rest_of(after, "reasoning_tokens")
    if thought is None and not hidden and not rest:
        return ABSENT
    return OutputTokensDetails(reasoning_tokens=max(thought or 0, hidden), kept=rest)


_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "prompt_tokens_details",
    "completion_tokens_details",
)


def _count(given: Mapping[str, object], name: str) -> int | None:
    value = given.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if value < 0:
        raise DecodeError(f"a count is negative: {value}", path=f"usage.{name}")
    return int(value)


def rest_of(given: Members, *known: str) -> Kept | Absent:
    """The members that nobody here knows, for the `kept` of a value."""
    rest = {name: value for name, value in given.items() if name not in known and value is not None}
    return as_unknown(rest) if rest else ABSENT


# --- what hangs on a text -----------------------------------------------------------------


def logprobs_of(given: Members | None) -> tuple[LogProb, ...]:
    """The tokens of a delta, with their candidates."""
    if not given:
        return ()
    return tuple(
        LogProb(
            token=str(one.get("token", "")),
            logprob=_number(one.get("logprob")),
            bytes=_bytes(one.get("bytes")),
            top_logprobs=tuple(
                TopLogProb(
                    token=str(top.get("token", "")),
                    logprob=_number(top.get("logprob")),
                    bytes=_bytes(top.get("bytes")),
                )
                for top in _objects(one.get("top_logprobs"))
            ),
        )
        for one in _objects(given.get("content"))
    )


def _number(value: object) -> int | float:
    return value if isinstance(value, int | float) else 0


def _bytes(value: object) -> tuple[int, ...] | None:
    return tuple(cast("list[int]", value)) if isinstance(value, list) else None


def annotation_of(given: Members) -> Annotation:
    """An annotation as the wire has it: a citation is flat there."""
    cited = given.get("url_citation")
    if given.get("type") != "url_citation" or not isinstance(cited, dict):
        return unknown_annotation(given)
    flat: Members = {"title": "", "start_index": 0, "end_index": 0, **cast("Members", cited)}
    known = {name: flat.pop(name, None) for name in ("url", "title", "start_index", "end_index")}
    try:
        citation = msgspec.convert({"type": "url_citation", **known}, UrlCitation)
    except msgspec.ValidationError:
        return unknown_annotation(given)
    return with_unknown(citation, flat) if flat else citation


def unknown_annotation(given: Members) -> Annotation:
    """An annotation that is kept as it came."""
    return UnknownAnnotation(
        type=str(given.get("type", "")), source=Source(msgspec.json.encode(given))
    )
