"""What a server must refuse before it calls a model."""

from __future__ import annotations

from typing import NoReturn, cast

from perdure.errors import InvalidRequest
from perdure.wire.items import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    Item,
    ItemReference,
    Message,
)
from perdure.wire.jsontext import member_path
from perdure.wire.parts import (
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    OutputText,
    Part,
    ReasoningText,
    Refusal,
    SummaryText,
    Text,
)
from perdure.wire.requests import CompactRequest, JsonSchemaFormat, Request
from perdure.wire.tools import AllowedTools, FunctionChoice, FunctionTool
from perdure.wire.values import Wire

_METADATA_LIMIT = 16

# Types nobody registered may stand anywhere, so what is refused is listed, not what is taken.
_ELSEWHERE: tuple[type[Part], ...] = (Text, SummaryText, ReasoningText)
_NOT_FROM_USERS: tuple[type[Part], ...] = (OutputText, Refusal, *_ELSEWHERE)
_NOT_FROM_MODELS: tuple[type[Part], ...] = (
    InputText,
    InputImage,
    InputFile,
    InputVideo,
    *_ELSEWHERE,
)


def validate_request(request: Request | CompactRequest) -> None:
    """Check a request against the rules of the specification.

    Raises:
        InvalidRequest: The request breaks a rule; `param` names the member at fault.
    """
    if not request.model:
        _missing("model")
    _check_nulls(request, "")
    if isinstance(request.input, tuple):
        for index, item in enumerate(request.input):
            _check_item(item, f"input[{index}]")
    if isinstance(request, Request):
        _check_settings(request)


def _missing(param: str) -> NoReturn:
    raise InvalidRequest("required", param=param, code="missing_required_parameter")


def _invalid(param: str, message: str) -> NoReturn:
    raise InvalidRequest(message, param=param, code="invalid_value")


def _check_nulls(value: object, path: str) -> None:
    """Refuse nulls where the type takes none; decoding keeps them beside the value."""
    if isinstance(value, tuple):
        for index, element in enumerate(cast("tuple[object, ...]", value)):
            _check_nulls(element, f"{path}[{index}]")
    if not isinstance(value, Wire):
        return
    for name in value.kept.members if value.kept else ():
        if name in value.__struct_encode_fields__:
            _invalid(member_path(path, name), "must not be null")
    for name in value.__struct_fields__:
        _check_nulls(getattr(value, name), member_path(path, name))


# --- items -------------------------------------------------------------------------


def _check_item(item: Item, path: str) -> None:
    match item:
        case Message():
            _check_message(item, path)
        case FunctionCall():
            _check_present(item, path, "call_id", "name")
            _check_given(item, path, "arguments")
        case FunctionCallOutput():
            _check_present(item, path, "call_id")
            _check_given(item, path, "output")
        case Compaction():
            _check_present(item, path, "encrypted_content")
        case ItemReference():
            _check_present(item, path, "id")
        case _:
            pass


def _check_present(value: Wire, path: str, *names: str) -> None:
    """Refuse members that are missing or empty."""
    for name in names:
        if not getattr(value, name):
            _missing(f"{path}.{name}")


def _check_given(value: Wire, path: str, name: str) -> None:
    """Refuse a member that is missing; it may be empty."""
    if value.kept and name in value.kept.absent:
        _missing(f"{path}.{name}")


def _check_message(message: Message, path: str) -> None:
    match message.role:
        case "user" | "system" | "developer":
            _check_content(message, path, _NOT_FROM_USERS)
        case "assistant":
            _check_content(message, path, _NOT_FROM_MODELS)
            if message.phase and message.phase not in {"commentary", "final_answer"}:
                _invalid(f"{path}.phase", f"unknown phase {message.phase!r}")
        case "":
            _missing(f"{path}.role")
        case _:
            _invalid(f"{path}.role", f"unknown role {message.role!r}")


def _check_content(message: Message, path: str, refused: tuple[type[Part], ...]) -> None:
    _check_given(message, path, "content")
    if isinstance(message.content, str):
        return
    for index, part in enumerate(message.content):
        if isinstance(part, refused):
            at = f"{path}.content[{index}]"
            _invalid(at, f"{part.type!r} has no place in a message of role {message.role!r}")


# --- settings ----------------------------------------------------------------------


def _check_settings(request: Request) -> None:
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, FunctionTool):
            _check_present(tool, f"tools[{index}]", "name")
    choice = request.tool_choice
    if isinstance(choice, FunctionChoice):
        _check_present(choice, "tool_choice", "name")
    if isinstance(choice, AllowedTools):
        for index, allowed in enumerate(choice.tools):
            if isinstance(allowed, FunctionChoice):
                _check_present(allowed, f"tool_choice.tools[{index}]", "name")
    text_format = request.text.format if request.text else None
    if isinstance(text_format, JsonSchemaFormat):
        _check_present(text_format, "text.format", "name")
    if request.metadata and len(request.metadata) > _METADATA_LIMIT:
        _invalid("metadata", f"at most {_METADATA_LIMIT} members")
