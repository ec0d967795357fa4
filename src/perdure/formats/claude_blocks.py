"""What items are as blocks of Claude messages.

A *block* is a piece of a message's content. The marks are those of the Anthropic adapter:
`perdure:anthropic` holds members of a block as they were, and items, parts and annotations whose
types begin with `anthropic:` hold a block or a citation whole. `perdure:claude` holds what is of
the form alone.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import NamedTuple

from perdure.formats.marks import kept
from perdure.formats.values import (
    Json,
    is_array,
    is_message,
    is_object,
    member,
    objects,
    parsed_object,
    text,
)
from perdure.wire.marks import MAKER, REDACTED, mark_of
from perdure.wire.media import read_data_url
from perdure.wire.outputs import is_error

PROVIDER = "anthropic"
OWN = mark_of(PROVIDER)
MARK = mark_of("claude")

RAW_ARGUMENTS = "_raw_arguments"
"""The one member of an input that stands for arguments which are no JSON object."""

_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


class Piece(NamedTuple):
    """What an item gives.

    Attributes:
        role: The role of the message that it belongs to.
        content: Its blocks; a string if its message has plain text for its content.
        gaps: The places of its parts that gave no block.
        message: It is a message.
    """

    role: str
    content: list[Json] | str
    gaps: tuple[int, ...] = ()
    message: bool = False


def piece_of(item: Json) -> Piece | None:
    """What an item gives; None if Claude has nothing like it."""
    piece = _piece_of(item)
    if piece is None or isinstance(piece.content, str):
        return piece
    return piece if all(text(block, "type") for block in piece.content) else None


def _piece_of(item: Json) -> Piece | None:
    if is_message(item):
        return _message(item)
    match item:
        case {"type": "function_call"}:
            return Piece("assistant", [finished(item, _tool_use(item))])
        case {"type": "function_call_output"}:
            return _output(item)
        case {"type": "reasoning"}:
            thinking = _thinking(item)
            return Piece("assistant", [finished(item, thinking)]) if thinking else None
        case {"type": str(kind), "block": dict()} if kind.startswith(f"{PROVIDER}:"):
            return Piece("assistant", [member(item, "block")])
        case _:
            return None


def _message(item: Json) -> Piece | None:
    role, content = text(item, "role"), item.get("content")
    if isinstance(content, str):
        return Piece(role, content, message=True)
    blocks, gaps = blocks_of(objects(content), assistant=role == "assistant")
    return Piece(role, blocks, gaps, message=True) if blocks or not gaps else None


def blocks_of(parts: list[Json], *, assistant: bool) -> tuple[list[Json], tuple[int, ...]]:
    """The blocks of parts, and the places of those that give none."""
    made = [block_of(part, assistant=assistant) for part in parts]
    gaps = tuple(place for place, block in enumerate(made) if block is None)
    return [block for block in made if block is not None], gaps


def block_of(part: Json, *, assistant: bool) -> Json | None:
    """The block of a part; None if Claude has nothing like it there."""
    block = _block_of(part, assistant=assistant)
    return block if block and text(block, "type") else None


def _block_of(part: Json, *, assistant: bool) -> Json | None:
    match part:
        case {"type": str(kind), "text": str()} if kind in _TEXTS:
            return finished(part, _text(part))
        case {"type": "input_image" | "input_file"} if not assistant:
            block = _media(part)
            return finished(part, block) if block else None
        case {"type": str(kind), "block": dict()} if kind.startswith(f"{PROVIDER}:"):
            return None if assistant else member(part, "block")
        case _:
            return None


def finished(value: Json, made: Json) -> Json:
    """A block with what the value carries for it."""
    block = {**made, **member(value, OWN)}
    if "cache_control" in value:
        block["cache_control"] = value["cache_control"]
    return kept(value, MARK, block)


# --- the kinds of blocks -----------------------------------------------------------------


def _text(part: Json) -> Json:
    block: Json = {"type": "text", "text": part["text"]}
    citations = [_citation(one, text(part, "text")) for one in objects(part.get("annotations"))]
    found = [one for one in citations if one is not None]
    if found:
        block["citations"] = found
    return block


def _citation(annotation: Json, said: str) -> Json | None:
    own = annotation.get(OWN)
    if is_object(own):
        return own
    match annotation:
        case {"type": str(kind), "citation": dict()} if kind.startswith(f"{PROVIDER}:"):
            return member(annotation, "citation")
        case {"type": "url_citation", "start_index": int(start), "end_index": int(end)}:
            return {
                "type": "web_search_result_location",
                "url": text(annotation, "url"),
                "title": text(annotation, "title"),
                "cited_text": said[start:end],
                "encrypted_index": "",
            }
        case _:
            return None


def _media(part: Json) -> Json | None:
    image = part.get("type") == "input_image"
    source = _source(part, image=image)
    if source is None:
        return None
    if image:
        return {"type": "image", "source": source}
    name = text(part, "filename")
    return {"type": "document", "source": source, **({"title": name} if name else {})}


def _source(part: Json, *, image: bool) -> Json | None:
    url = text(part, "image_url" if image else "file_url")
    data = url if image else text(part, "file_data")
    inline = read_data_url(data)
    if inline is not None and inline.type:
        said = _plain_text(inline.data) if inline.type == "text/plain" and not image else None
        if said is not None:
            return {"type": "text", "media_type": "text/plain", "data": said}
        return {"type": "base64", "media_type": inline.type, "data": inline.data}
    if data.startswith("JVBERi0"):
        return {"type": "base64", "media_type": "application/pdf", "data": data}
    if url and not url.startswith("data:"):
        return {"type": "url", "url": url}
    if text(part, "file_id"):
        return {"type": "file", "file_id": part["file_id"]}
    return None


def _plain_text(data: str) -> str | None:
    try:
        return b64decode(data, validate=True).decode()
    except (Base64Error, ValueError):
        return None


def _tool_use(call: Json) -> Json:
    arguments = text(call, "arguments")
    given: Json | None = {} if not arguments.strip() else parsed_object(arguments)
    return {
        "type": "tool_use",
        "id": call.get("call_id"),
        "name": call.get("name"),
        "input": {RAW_ARGUMENTS: arguments} if given is None else given,
    }


def _output(item: Json) -> Piece:
    output = item.get("output")
    content: object = output
    gaps: tuple[int, ...] = ()
    said = output if isinstance(output, str) else ""
    if is_array(output):
        content, gaps = blocks_of(objects(output), assistant=False)
        said = next((text(part, "text") for part in objects(output) if "text" in part), "")
    block: Json = {"type": "tool_result", "tool_use_id": item.get("call_id"), "content": content}
    if is_error(said):
        block["is_error"] = True
    return Piece("user", [finished(item, block)], gaps)


def _thinking(item: Json) -> Json | None:
    shown = objects(item.get("summary")) or objects(item.get("content"))
    said = "".join(text(part, "text") for part in shown)
    if item.get(MAKER) == PROVIDER:
        sealed = text(item, "encrypted_content")
        if item.get(REDACTED) is True:
            return {"type": "redacted_thinking", "data": sealed}
        return {"type": "thinking", "thinking": said, "signature": sealed}
    # Nobody else's seal is a signature to Claude; it takes no thought without one.
    return {"type": "thinking", "thinking": said, "signature": ""} if said else None
