"""What the blocks of Claude messages are as items.

Texts, images and documents that stand side by side are the parts of one message; a tool use, a tool
result and a thought are items of their own, and a block of any other type is kept whole. Each value
is marked so that the writer makes exactly its block again.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

from perdure.errors import DecodeError
from perdure.formats.claude_blocks import MARK, OWN, PROVIDER, RAW_ARGUMENTS, block_of, piece_of
from perdure.formats.marks import difference, put
from perdure.formats.values import Json, compact, is_array, is_object, objects, parsed_object, text
from perdure.wire.marks import MAKER, REDACTED
from perdure.wire.media import data_url


def items_of(
    role: str, content: object, path: str, counts: Sequence[int] | None = None
) -> list[Json]:
    """The items of a message's content.

    Args:
        role: Whose message it is.
        content: Plain text, or blocks.
        path: Where the message stands.
        counts: How many blocks belong to each item; by the rules if nobody says.

    Raises:
        DecodeError: It is neither text nor a list of blocks with types.
    """
    if isinstance(content, str):
        return [_message(role, content)]
    if not is_array(content):
        raise DecodeError("the content is neither text nor a list of blocks", path=path)
    blocks = [_checked(block, f"{path}.content[{at}]") for at, block in enumerate(content)]
    if not blocks:
        return [_message(role, [])]
    if counts is None:
        return _items(role, blocks)
    items: list[Json] = []
    start = 0
    for count in counts:
        items += _items(role, blocks[start : start + count])
        start += count
    return items


def _checked(block: object, path: str) -> Json:
    if not is_object(block) or not text(block, "type"):
        raise DecodeError("a block is an object with a type", path=path)
    return block


def _items(role: str, blocks: list[Json]) -> list[Json]:
    items: list[Json] = []
    parts: list[object] | None = None
    for block in blocks:
        part = _part(block, role)
        item = None if part is not None else _item(block, assistant=role == "assistant")
        if item is not None:
            items.append(item)
            parts = None
        elif parts is None:
            parts = [part]
            items.append(_message(role, parts))
        else:
            parts.append(part)
    return items


def _message(role: str, content: object) -> Json:
    status: Json = {"status": "completed"} if role == "assistant" else {}
    return {"type": "message", **status, "role": role, "content": content}


# --- parts -------------------------------------------------------------------------------


def _part(block: Json, role: str) -> Json | None:
    """The part of a block; None for a block that is an item."""
    part: Json
    assistant = role == "assistant"
    match block:
        case {"type": "text", "text": str(said)}:
            part = {"type": "output_text" if assistant else "input_text", "text": said}
            if assistant:
                cited = objects(block.get("citations"))
                part["annotations"] = [_annotation(one, len(said)) for one in cited]
        case {"type": "tool_result", "tool_use_id": str()} if role == "user":
            return None
        case {"type": "image" | "document", "source": dict()} if not assistant:
            part = _media(block) or _whole(block)
        case _ if assistant:
            return None
        case _:
            part = _whole(block)
    made = block_of(part, assistant=assistant)
    if made is None:  # a source without an address, say
        return _whole(block)
    return _marked(part, block, made)


def _whole(block: Json) -> Json:
    return {"type": f"{PROVIDER}:{text(block, 'type')}", "block": block}


def _media(block: Json) -> Json | None:
    image = block["type"] == "image"
    found: Json
    match block["source"]:
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            found = {"image_url" if image else "file_data": data_url(kind, data)}
        case {"type": "url", "url": str(url)}:
            found = {"image_url" if image else "file_url": url}
        case {"type": "file", "file_id": str(file_id)}:
            found = {"file_id": file_id}
        case {"type": "text", "media_type": "text/plain", "data": str(said)} if not image:
            try:
                data = b64encode(said.encode()).decode()
            except UnicodeEncodeError:
                return None
            found = {"file_data": data_url("text/plain", data)}
        case _:
            return None
    if image:
        return {"type": "input_image", **found, "detail": "auto"}
    title = text(block, "title")
    return {"type": "input_file", **({"filename": title} if title else {}), **found}


def _annotation(citation: Json, size: int) -> Json:
    """A citation, which hangs on the whole text of its block."""
    url = citation.get("url")
    if isinstance(url, str):
        return {
            "type": "url_citation",
            "url": url,
            "title": text(citation, "title"),
            "start_index": 0,
            "end_index": size,
            OWN: citation,
        }
    kind = text(citation, "type") or "citation"
    return {"type": f"{PROVIDER}:{kind}", "citation": citation}


def _marked(value: Json, block: Json, made: Json) -> Json:
    """A value, marked so that it is written as its block."""
    changed, without = difference(made, block)
    if "cache_control" in changed:
        value["cache_control"] = changed.pop("cache_control")
    if changed:
        value[OWN] = changed
    put(value, MARK, without=without)
    return value


# --- items ---------------------------------------------------------------------------------


def _item(block: Json, *, assistant: bool) -> Json:
    item = _assistant_item(block) if assistant else _output(block)
    if text(item, "type").startswith(f"{PROVIDER}:"):
        return item
    piece = piece_of(item)
    made = piece.content[0] if piece is not None and not isinstance(piece.content, str) else {}
    return _marked(item, block, made)


def _assistant_item(block: Json) -> Json:
    match block:
        case {"type": "thinking", "thinking": str(said)}:
            signature = text(block, "signature")
            sealed: Json = {"encrypted_content": signature, MAKER: PROVIDER} if signature else {}
            if not (said or signature):
                return _whole_item(block)
            return {"type": "reasoning", "summary": _summary(said), **sealed}
        case {"type": "redacted_thinking", "data": str(data)}:
            thought: Json = {"type": "reasoning", "summary": [], "encrypted_content": data}
            return {**thought, MAKER: PROVIDER, REDACTED: True}
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": dict()}:
            return {
                "type": "function_call",
                "call_id": call_id,
                "name": name,
                "arguments": _arguments(block["input"]),
                "status": "completed",
            }
        case _:
            return _whole_item(block)


def _summary(said: str) -> list[object]:
    return [{"type": "summary_text", "text": said}] if said else []


def _whole_item(block: Json) -> Json:
    named: Json = {"id": block["id"]} if text(block, "id") else {}
    kind = f"{PROVIDER}:{text(block, 'type')}"
    return {"type": kind, **named, "status": "completed", "block": block}


def _arguments(given: object) -> str:
    raw = given.get(RAW_ARGUMENTS) if is_object(given) and len(given) == 1 else None
    if isinstance(raw, str) and raw.strip() and parsed_object(raw) is None:
        return raw
    return compact(given)


def _output(block: Json) -> Json:
    content = block.get("content")
    output: object = content if isinstance(content, str) else ""
    if is_array(content) and all(is_object(one) and text(one, "type") for one in content):
        output = [_content_part(one) for one in objects(content)]
    return {
        "type": "function_call_output",
        "call_id": block["tool_use_id"],
        "output": output,
    }


def _content_part(block: Json) -> Json:
    """A part of a result, where no block is an item."""
    return _part(block, "") or _whole(block)
