"""What an assistant thinks, says and calls, as members of one Chat message, and back.

A thought goes to `reasoning_content`, or to the member that its mark names; one that OpenRouter
gave in detail to `reasoning_details`, under the mark of that service's adapter. Texts are the
`content`, calls the `tool_calls`.
"""

from __future__ import annotations

from perdure.formats.chat_parts import MARK, PREFIX, chat_parts, wire_parts
from perdure.formats.marks import difference, kept, put
from perdure.formats.values import Json, is_array, is_object, member, objects, same, text
from perdure.wire.foreign import nested_citation, sealed_member, thought_detail
from perdure.wire.marks import MAKER, SIGNATURE, is_mark, mark_of

DETAILS = mark_of("openrouter")
"""The mark of a thought in detail: what its detail has beside its texts."""

THOUGHT = "reasoning_content"
_THOUGHTS = (THOUGHT, "reasoning")
IN_CONTENT = "content"
"""The member of thoughts that stand before the texts, as Mistral has them."""


# --- thoughts ----------------------------------------------------------------------------


def thought_member(item: Json) -> str:
    """The member that a thought goes to; empty if there is nothing to show of it."""
    if text(member(item, DETAILS), "type"):
        return "reasoning_details"
    field = text(member(item, MARK), "field")
    return (field if field in {*_THOUGHTS, IN_CONTENT} else THOUGHT) if said_in(item) else ""


def said_in(item: Json) -> str:
    """The text of a thought."""
    shown = objects(item.get("content")) or objects(item.get("summary"))
    return "".join(text(part, "text") for part in shown)


def detail_of(item: Json) -> Json:
    """A thought as OpenRouter gives it."""
    own = member(item, DETAILS)
    return thought_detail(
        own,
        text(own, "type"),
        text="".join(text(part, "text") for part in objects(item.get("content"))),
        summary="".join(text(part, "text") for part in objects(item.get("summary"))),
        sealed=text(item, "encrypted_content"),
    )


def thinking_of(items: list[Json]) -> Json:
    """Thoughts as one part of the content, of a piece for each."""
    return {
        "type": "thinking",
        "thinking": [{"type": "text", "text": said_in(item)} for item in items],
    }


def leading_thoughts(content: object) -> list[Json]:
    """The thoughts of the part that a content begins with; none if that is another."""
    first = next(iter(objects(content)), None)
    if first is None or first.get("type") != "thinking":
        return []
    items: list[Json] = [
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": text(piece, "text")}],
            MARK: {"field": IN_CONTENT},
        }
        for piece in objects(first.get("thinking"))
    ]
    return items if all(map(said_in, items)) and same(thinking_of(items), first) else []


def thoughts_of(message: Json) -> list[Json]:
    """The thoughts of a message, but for those in its content."""
    details = message.get("reasoning_details")
    if is_array(details) and details and all(is_object(d) and text(d, "type") for d in details):
        return [_detailed(one) for one in objects(details)]
    found: list[Json] = []
    for name in _THOUGHTS:
        said = text(message, name)
        if said:
            item: Json = {
                "type": "reasoning",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": said}],
            }
            put(item, MARK, field="" if name == THOUGHT else name)
            found.append(item)
    return found


def _detailed(detail: Json) -> Json:
    rest = dict(detail)
    sealed = sealed_member(text(detail, "type"))
    names = ("text", "summary", sealed)
    found = {name: rest.pop(name) for name in names if text(detail, name)}
    item: Json = {"type": "reasoning", "summary": [], MAKER: "openrouter", DETAILS: rest}
    if "summary" in found:
        item["summary"] = [{"type": "summary_text", "text": found["summary"]}]
    if "text" in found:
        item["content"] = [{"type": "reasoning_text", "text": found["text"]}]
    if sealed in found:
        item["encrypted_content"] = found[sealed]
    return item


# --- what is said --------------------------------------------------------------------------


def said_members(item: Json) -> tuple[Json, tuple[int, ...]]:
    """The members of a message that hold what an item says, and the places of parts left out."""
    content = item.get("content")
    if isinstance(content, str):
        return {"content": content}, ()
    parts = objects(content)
    made, gaps = chat_parts(parts)
    members: Json = {}
    if made and made[-1].keys() == {"type", "refusal"} and item.get("role") == "assistant":
        members["refusal"] = made.pop()["refusal"]
    members["content"] = made or (None if members else [])
    listed = member(item, MARK).get("parts") is True
    if len(made) == 1 and made[0].keys() == {"type", "text"} and not listed:
        members["content"] = made[0]["text"]
    notes = [_chat_note(one) for part in parts for one in objects(part.get("annotations"))]
    if notes:
        members["annotations"] = notes
    return members, gaps


def message_of(message: Json, path: str, *, alone: bool, skip: bool = False) -> Json | None:
    """The item of what a message says; None if it says nothing, and is not `alone`.

    Args:
        message: The message.
        path: Where it stands.
        alone: There is nothing else in it.
        skip: The first part of its content is thoughts.
    """
    assistant = message["role"] == "assistant"
    content, refusal = message.get("content"), message.get("refusal")
    if skip and is_array(content):
        content = content[1:]
    if content is None or (not content and not alone):
        content = list[object]()
    parts = wire_parts(content, path, assistant=assistant)
    if assistant and isinstance(refusal, str):
        parts.append({"type": "refusal", "refusal": refusal})
    if not parts and not alone:
        return None
    notes = message.get("annotations")
    first = next((part for part in parts if part.get("type") == "output_text"), None)
    if first is not None and is_array(notes):
        first["annotations"] = [_wire_note(one) for one in objects(notes) if text(one, "type")]
    status: Json = {"status": "completed"} if assistant else {}
    item: Json = {"type": "message", **status, "role": message["role"], "content": parts}
    if is_array(content) and not skip and isinstance(said_members(item)[0].get("content"), str):
        put(item, MARK, parts=True)
    return item


def _chat_note(note: Json) -> Json:
    """An annotation as Chat writes it, without marks."""
    return nested_citation({name: one for name, one in note.items() if not is_mark(name)})


def _wire_note(note: Json) -> Json:
    inner = note.get("url_citation")
    if note.keys() == {"type", "url_citation"} and is_object(inner) and "type" not in inner:
        return {"type": "url_citation", **inner}
    return note


# --- calls -----------------------------------------------------------------------------------


def call_of(item: Json) -> Json:
    """A call as Chat writes it."""
    if item.get("type") != "function_call":
        return member(item, "call")
    function: Json = {"name": item.get("name"), "arguments": item.get("arguments")}
    call: Json = {"id": item.get("call_id"), "type": "function", "function": function}
    if SIGNATURE in item:
        call["extra_content"] = {"google": {"thought_signature": item[SIGNATURE]}}
    return kept(item, MARK, {**call, **member(member(item, MARK), "set")})


def is_call(item: Json) -> bool:
    """Whether an item goes among the calls."""
    kind = text(item, "type")
    return kind == "function_call" or (kind.startswith(PREFIX) and is_object(item.get("call")))


def calls_of(message: Json) -> list[Json]:
    """The calls of a message."""
    return [_call(one) for one in objects(message.get("tool_calls"))]


def _call(given: Json) -> Json:
    match given:
        case {"id": str(id_), "function": {"name": str(name), "arguments": str(arguments)}}:
            item: Json = {"type": "function_call", "call_id": id_, "name": name}
            item |= {"arguments": arguments, "status": "completed"}
        case _:
            kind = text(given, "type") or "tool_call"
            return {"type": f"{PREFIX}{kind}", "status": "completed", "call": given}
    match given.get("extra_content"):
        case {"google": {"thought_signature": str(signature)}}:
            item[SIGNATURE] = signature
        case _:
            pass
    changed, without = difference(call_of(item), given)
    put(item, MARK, set=changed, without=without)
    return item
