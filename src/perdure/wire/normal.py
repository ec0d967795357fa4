"""Normal forms, and the hash of a request.

*normal form*: the one way to write what can be written in several: a content is a list of
parts, an image has a detail, a tool a description, and nothing that is empty is written. It is
what hashes are taken over, so that two programs that mean the same get the same hash; values
are recorded and sent as they are, not in it.

A message without a `type` has no normal form and counts as it was written. Members that a type
does not know stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from perdure.errors import NotIJson
from perdure.wire.canonical import canonical_json, canonicalize
from perdure.wire.codec import encode
from perdure.wire.construct import user
from perdure.wire.items import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
    Reasoning,
)
from perdure.wire.parts import (
    InputFile,
    InputImage,
    InputText,
    LogProb,
    OutputText,
    Part,
)
from perdure.wire.requests import (
    Format,
    JsonSchemaFormat,
    ReasoningConfig,
    Request,
    TextConfig,
    TextFormat,
)
from perdure.wire.tools import (
    AllowedTools,
    FunctionChoice,
    FunctionTool,
    ToolChoice,
    ToolDefinition,
)
from perdure.wire.values import ABSENT, Absent, Kept, Wire

W = TypeVar("W", bound=Wire)

# --- items -------------------------------------------------------------------------


def normal_item(item: Item) -> bytes:
    """An item in its normal form, as canonical JSON.

    Raises:
        NotIJson: It holds what canonical JSON cannot carry, as a lone surrogate.
    """
    return canonicalize(encode(_item(item)))


def normal_tool(tool: ToolDefinition) -> bytes:
    """A tool's definition in its normal form, as canonical JSON. Raises as `normal_item`."""
    return canonicalize(encode(_tool(tool)))


def _item(item: Item) -> Item:
    match item:
        case Message():
            return _message(item)
        case FunctionCall():
            return _bare(item, "id", "status")
        case FunctionCallOutput():
            return replace(_bare(item, "id", "status"), output=_output(item))
        case Reasoning():
            return replace(
                _bare(item, "id", "status", "encrypted_content"),
                summary=_parts(item.summary),
                content=_parts(item.content or ()) or ABSENT,
            )
        case Compaction():
            return _bare(item, "id", "status", "created_by")
        case ItemReference():
            return _bare(item)
        case _:
            return item


def _message(item: Message) -> Message:
    if item.kept and "type" in item.kept.absent:
        return item
    content = item.content
    if isinstance(content, str):
        of_text = OutputText if item.role == "assistant" else InputText
        content = (of_text(text=content),)
    return replace(_bare(item, "id", "status", "phase"), content=_parts(content))


def _output(item: FunctionCallOutput) -> str | tuple[Part, ...]:
    if item.kept and ("output" in item.kept.absent or "output" in item.kept.members):
        return ""  # missing or null
    return item.output if isinstance(item.output, str) else _parts(item.output)


def _bare(value: W, *optional: str) -> W:
    """Without what is empty among `optional`, and without nulls that the type does not take."""
    changes: dict[str, object] = {name: getattr(value, name) or ABSENT for name in optional}
    return replace(value, kept=_unknown(value), **changes)


def _unknown(value: Wire) -> Kept | Absent:
    if not value.kept:
        return ABSENT
    typed = value.__struct_encode_fields__
    unknown = {name: raw for name, raw in value.kept.members.items() if name not in typed}
    return Kept(unknown, frozenset()) if unknown else ABSENT


# --- parts -------------------------------------------------------------------------


def _parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple([_part(part) for part in parts])


def _part(part: Part) -> Part:
    match part:
        case OutputText():
            return replace(
                _bare(part),
                annotations=tuple([_bare(a) for a in part.annotations or ()]),
                logprobs=tuple([_logprob(p) for p in part.logprobs or ()]) or ABSENT,
            )
        case InputImage():
            return replace(
                _bare(part, "file_id"),
                image_url=part.image_url or "",
                detail=part.detail or "auto",
            )
        case InputFile():
            return _bare(part, "filename", "file_data", "file_url", "file_id")
        case _:
            return _bare(part) if part.kept else part


def _logprob(logprob: LogProb) -> LogProb:
    return replace(
        _bare(logprob),
        bytes=logprob.bytes or (),
        top_logprobs=tuple(
            [replace(_bare(top), bytes=top.bytes or ()) for top in logprob.top_logprobs or ()]
        ),
    )


# --- settings ----------------------------------------------------------------------

_NOT_HASHED = ("input", "stream", "stream_options", "background", "previous_response_id")
_EMPTY: tuple[object, ...] = (None, "", (), {})


def _settings(request: Request) -> dict[str, bytes]:
    """What is hashed of a request beside its input: each member as canonical JSON, in order."""
    left_out = {
        name: ABSENT
        for name in request.__struct_fields__
        if name in _NOT_HASHED or getattr(request, name) in _EMPTY
    }
    settings = replace(request, kept=_unknown(request), **left_out)
    settings = replace(
        settings,
        store=False,
        tools=tuple([_tool(tool) for tool in settings.tools or ()]) or ABSENT,
        tool_choice=_tool_choice(settings.tool_choice),
        text=_text(settings.text),
        reasoning=_reasoning(settings.reasoning),
    )
    members = msgspec.json.decode(canonicalize(encode(settings)), type=dict[str, msgspec.Raw])
    return {name: bytes(member) for name, member in members.items()}


def _tool(tool: ToolDefinition) -> ToolDefinition:
    if not isinstance(tool, FunctionTool):
        return tool
    return replace(
        _bare(tool),
        description=tool.description or "",
        parameters=None if tool.parameters is ABSENT else tool.parameters,
        strict=ABSENT if tool.strict is None else tool.strict,
    )


def _tool_choice(choice: ToolChoice | None | Absent) -> ToolChoice | None | Absent:
    match choice:
        case FunctionChoice():
            return _bare(choice)
        case AllowedTools():
            tools = tuple([_bare(tool) for tool in choice.tools])
            return replace(_bare(choice), tools=tools, mode=choice.mode or "")
        case _:
            return choice


def _text(text: TextConfig | None | Absent) -> TextConfig | Absent:
    if not text:
        return ABSENT
    text = _bare(text, "format", "verbosity")
    if not text.format and not text.verbosity and not text.kept:
        return ABSENT
    return replace(text, format=_format(text.format or TextFormat()))


def _format(text_format: Format) -> Format:
    if isinstance(text_format, JsonSchemaFormat):
        text_format = _bare(text_format, "description")
        return replace(
            text_format, strict=ABSENT if text_format.strict is None else text_format.strict
        )
    return _bare(text_format)


def _reasoning(reasoning: ReasoningConfig | None | Absent) -> ReasoningConfig | Absent:
    if not reasoning:
        return ABSENT
    return replace(
        _bare(reasoning),
        effort=reasoning.effort or None,
        summary=reasoning.summary or None,
    )


# --- the hash ----------------------------------------------------------------------


def request_hash(request: Request) -> str:
    """`sha256:` and the hash of what a model gets: settings and input, in normal form.

    How the answer is delivered (`stream`, `background`) and what a server holds
    (`previous_response_id`) do not count, and `store` counts as false.

    Raises:
        NotIJson: The request holds what canonical JSON cannot carry.
    """
    running = RequestHash(request)
    if isinstance(request.input, str):
        running.extend((user(request.input),))
    elif request.input:
        running.extend(request.input)
    return running.digest()


class RequestHash:
    """The hash of a request whose input grows.

    Canonical JSON writes the input in the middle of the request, so one SHA-256 state holds
    what stands before it and its items so far; a turn costs its new items and the settings
    that stand behind (DESIGN 7).

    Args:
        settings: The request; its input does not count.

    Raises:
        NotIJson: The settings hold what canonical JSON cannot carry.
    """

    __slots__ = ("_after", "_before", "_count", "_failure", "_state")

    def __init__(self, settings: Request) -> None:
        members = [(n, canonical_json(n) + b":" + m) for n, m in _settings(settings).items()]
        self._before = b"".join(member + b"," for name, member in members if name < "input")
        self._after = b",".join(member for name, member in members if name > "input")
        self._state = hashlib.sha256(b"{" + self._before + b'"input":[')
        self._count = 0
        self._failure: NotIJson | None = None

    def extend(self, items: Iterable[Item]) -> None:
        """Add items to the input. One that canonical JSON cannot carry spoils later digests."""
        for item in items:
            try:
                text = normal_item(item)
            except NotIJson as error:
                at = f"/input/{self._count}{error.path}"
                self._failure = self._failure or NotIJson(error.reason, path=at)
                text = b""
            self._state.update(b"," + text if self._count else text)
            self._count += 1

    def digest(self) -> str:
        """The hash of the request with the items so far.

        Raises:
            NotIJson: An item holds what canonical JSON cannot carry.
        """
        if self._failure:
            raise self._failure
        if not self._count:  # an empty input is not written
            state = hashlib.sha256(b"{" + self._before + self._after + b"}")
        else:
            state = self._state.copy()
            state.update(b"]," + self._after + b"}")
        return "sha256:" + state.hexdigest()

    def copy(self) -> RequestHash:
        """A hash in the same state."""
        twin = object.__new__(RequestHash)
        twin._before, twin._after = self._before, self._after
        twin._state, twin._count = self._state.copy(), self._count
        twin._failure = self._failure
        return twin
