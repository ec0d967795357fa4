"""Conversations that one provider held, sent to another: legal requests, and every loss told.

All pairs of the adapters, over everything that was recorded. A request is *legal* by the rules of
its provider, its losses are *true* if what each names stands at its place, and the report is
*whole* if all that the conversation says is in the request or in the report.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models import Body, anthropic, bedrock, chat, gemini, openresponses, openrouter
from perdure.models.dialects import DIALECTS, OPENAI, OPENROUTER, Dialect
from perdure.models.mapping.losses import Loss
from perdure.wire import (
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    InputFile,
    InputImage,
    Item,
    Message,
    Reasoning,
    Request,
    Response,
    TextPart,
    UnknownItem,
    decode_request,
    encode,
    function_call_output,
    is_extension,
    user,
)
from tests.models import legal
from tests.models.anthropic import reading as anthropic_reading
from tests.models.bedrock import reading as bedrock_reading
from tests.models.chat import reading as chat_reading
from tests.models.gemini import reading as gemini_reading
from tests.models.recorded import CLOCK, Count, Interaction, interactions, whole


class Side(NamedTuple):
    """A provider, as where a conversation comes from and where it goes.

    Attributes:
        recorded: The file of its recorded traffic.
        model: A model of its.
        maker: What its thoughts are marked with; empty if they are not.
        says: The items of an exchange.
        body: Maps a request.
        losses: Tells what that loses.
        check: Refuses a body that is not legal.
    """

    recorded: str
    model: str
    maker: str
    says: Callable[[Interaction], list[Item] | None]
    body: Callable[[ModelRequest], Body]
    losses: Callable[[ModelRequest], tuple[Loss, ...]]
    check: Callable[[Any], None]


# --- what was said -------------------------------------------------------------------------


def _asked(one: Interaction) -> bool:
    """Whether an exchange asked a model for an answer, and got one."""
    other = re.search(r"count[_-]tokens|/invoke|input_tokens|compact$", one.path)
    return bool(one.request) and one.status == 200 and not other


def _answered(module: Any, reading: Any, one: Interaction) -> list[Item] | None:
    if not _asked(one) or not ({"messages", "contents"} & one.request.keys()):
        return None
    request: ModelRequest = reading.request_of(one)
    decoder = module.StreamDecoder(request, ids=Count(), clock=CLOCK)
    return [*request.input, *_output(decoder, one)]


def _output(decoder: Any, one: Interaction) -> tuple[Item, ...]:
    response: Response = whole(decoder, one.answer)[-1].response  # type: ignore[union-attr]
    return response.output


def _chatted(one: Interaction, *, openrouter: bool) -> list[Item] | None:
    if not _asked(one) or (dialect := chat_reading.dialect_of(one)) is None:
        return None
    if (dialect is OPENROUTER) is not openrouter:
        return None
    request = chat_reading.request_of(one)
    decoder = chat.StreamDecoder(request, dialect=dialect, ids=Count(), clock=CLOCK)
    return [*request.input, *_output(decoder, one)]


def _responded(one: Interaction) -> list[Item] | None:
    unended = b'"status": "queued"' in one.answer or b'"status": "in_progress"' in one.answer
    if not _asked(one) or (unended and not one.stream) or "conversation" in one.request:
        return None
    if "previous_response_id" in one.request:
        return None  # the server holds what was said before
    given = decode_request(json.dumps(one.request)).input
    before = [user(given)] if isinstance(given, str) else list(given or ())
    return [*before, *_output(openresponses.StreamDecoder(), one)]


SIDES = {
    "openresponses": Side(
        "responses",
        "gpt-5-mini",
        "",
        _responded,
        openresponses.request_body,
        openresponses.losses,
        legal.check_openresponses,
    ),
    "chat": Side(
        "chat",
        "gpt-5-mini",
        "openai",
        partial(_chatted, openrouter=False),
        chat.request_body,
        chat.losses,
        partial(legal.check_chat, dialect=OPENAI),
    ),
    "openrouter": Side(
        "chat",
        "openai/gpt-5-mini",
        "openrouter",
        partial(_chatted, openrouter=True),
        openrouter.request_body,
        openrouter.losses,
        partial(legal.check_chat, dialect=OPENROUTER),
    ),
    "anthropic": Side(
        "anthropic",
        "claude-opus-4-8",
        "anthropic",
        partial(_answered, anthropic, anthropic_reading),
        anthropic.request_body,
        anthropic.losses,
        legal.check_anthropic,
    ),
    "gemini": Side(
        "gemini",
        "gemini-3-pro-preview",
        "gemini",
        partial(_answered, gemini, gemini_reading),
        gemini.request_body,
        gemini.losses,
        legal.check_gemini,
    ),
    "bedrock": Side(
        "bedrock",
        "us.amazon.nova-2-lite-v1:0",
        "bedrock",
        partial(_answered, bedrock, bedrock_reading),
        bedrock.request_body,
        bedrock.losses,
        legal.check_bedrock,
    ),
}


@cache
def conversations(shared: Path, name: str) -> tuple[tuple[Item, ...], ...]:
    """The recorded conversations of a provider, each answered and gone on with."""
    pytest.importorskip("botocore")
    side = SIDES[name]
    found: list[tuple[Item, ...]] = []
    for one in interactions(shared, side.recorded):
        said = side.says(one)
        if said is not None:
            answered = {item.call_id for item in said if isinstance(item, FunctionCallOutput)}
            calls = [item for item in said if isinstance(item, FunctionCall)]
            open_ = [call.call_id for call in reversed(calls) if call.call_id not in answered]
            outputs = [function_call_output(call_id, "done") for call_id in open_]
            found.append((*said, *outputs, user("Go on.")))
    return tuple(found)


def sent_to(target: str, items: tuple[Item, ...]) -> ModelRequest:
    return ModelRequest(settings=Request(model=SIDES[target].model), input=Items.of(items))


PAIRS = pytest.mark.parametrize(
    ("source", "target"), [(source, target) for source in SIDES for target in SIDES]
)


def test_there_is_something_to_move(shared: Path) -> None:
    assert {name: len(conversations(shared, name)) for name in SIDES} == {
        "openresponses": 116,
        "chat": 149,
        "openrouter": 41,
        "anthropic": 138,
        "gemini": 153,
        "bedrock": 121,
    }


# --- what goes, and what is said of the rest ---------------------------------------------------


@PAIRS
def test_a_conversation_moves_and_says_what_it_loses(
    shared: Path, source: str, target: str
) -> None:
    side = SIDES[target]
    for items in conversations(shared, source):
        request = sent_to(target, items)
        raw = b"".join(side.body(request).fragments)
        body = json.loads(raw)
        side.check(body)
        losses = side.losses(request)
        for loss in losses:
            check_true(loss, items)
        check_whole(items, body, losses, target)
        check_private(items, raw, losses, target)


def check_true(loss: Loss, items: tuple[Item, ...]) -> None:
    """What is said to be lost stands where it is said to."""
    steps = re.findall(r"\[(\d+)\]|\.([\w:]+)", loss.at.removeprefix("input"))
    assert loss.at.startswith("input[")
    value: Any = [json.loads(encode(items[int(steps[0][0])]))]
    for index, name in [("0", ""), *steps[1:]]:
        value = value[int(index)] if index else value[name]
    assert loss.reason
    if isinstance(value, dict) and loss.what == value.get("type"):
        return
    assert loss.what in json.dumps(loss.at) or _describes(loss.what, value)


def _describes(what: str, value: Any) -> bool:
    """Whether a word is one for a value: its role, its media type, its blank text."""
    if what in {"system", "text", "image", "detail", "arguments"} or "/" in what:
        return True
    return what == value or (isinstance(value, dict) and what in value.values())


def check_whole(items: tuple[Item, ...], body: Any, losses: tuple[Loss, ...], target: str) -> None:
    """All that the items say is in the body, or is said to be lost."""
    sent = "\n".join(_strings(body))
    lost = {int(re.findall(r"\d+", loss.at)[0]) for loss in losses}
    for index, item in enumerate(items):
        for said in _said(item):
            assert said in sent or index in lost, (target, index, said[:80])


def _strings(value: Any) -> Iterator[str]:
    """All that a value says: its strings, and what they hold as JSON or as bytes."""
    if isinstance(value, str):
        yield value
        with contextlib.suppress(ValueError):
            yield from _strings(json.loads(value)) if value[:1] in "{[" else ()
        yield _of_data(value)
    elif isinstance(value, dict):
        yield _canonical(value)
        for name, member in value.items():
            yield name
            yield from _strings(member)
    elif isinstance(value, list):
        yield _canonical(value)
        for member in value:
            yield from _strings(member)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _said(item: Item) -> Iterator[str]:
    match item:
        case Message(content=str() as text):
            yield text
        case Message(content=parts):
            for part in parts:
                yield from _of_part(part)
        case FunctionCall():
            yield item.name
            yield from _of_json(item.arguments or "{}")
        case FunctionCallOutput(output=str() as text):
            yield from _of_json(text.removeprefix("Error: "))
        case FunctionCallOutput(output=parts):
            for part in parts:
                yield from _of_part(part)
        case Reasoning():
            yield from (p.text for p in item.content or item.summary if isinstance(p, TextPart))
        case UnknownItem() | Compaction() if not is_extension(item):
            yield item.type
        case _:
            pass


def _of_part(part: Any) -> Iterator[str]:
    match part:
        case InputImage(image_url=str() as url) | InputFile(file_url=str() as url):
            yield _of_data(url)
        case InputFile(file_data=str() as data):
            yield _of_data(data)
        case _ if isinstance(part, TextPart):
            yield part.text
        case _:
            pass


def _of_data(given: str) -> str:
    """Bytes in base64, or their text if they are one; an address as it is."""
    data = given.partition(",")[2] or given
    try:
        return base64.b64decode(data.encode(), validate=True).decode()
    except ValueError:
        return data


def _of_json(text: str) -> Iterator[str]:
    try:
        value = json.loads(text)
    except ValueError:
        yield text
    else:
        if isinstance(value, dict | list):
            yield _canonical(value)


def check_private(
    items: tuple[Item, ...], raw: bytes, losses: tuple[Loss, ...], target: str
) -> None:
    """What only its maker takes goes to no other, and is said not to."""
    assert b"perdure:" not in raw
    lost = {loss.at for loss in losses}
    for index, item in enumerate(items):
        at = f"input[{index}]"
        if not private(item, target):
            continue
        assert at in lost
        if isinstance(item, Reasoning) and item.encrypted_content:
            assert item.encrypted_content.encode() not in raw


def private(item: Item, target: str) -> bool:
    """Whether an item holds what its maker alone takes, and the target is another."""
    match item:
        case Reasoning():
            maker = item.unknown.get("perdure:provider")
            if maker is None:
                return bool(item.encrypted_content) and target != "openresponses"
            return maker != SIDES[target].maker
        case UnknownItem():
            return is_extension(item) and not item.type.startswith(f"{target}:")
        case Compaction():
            return target != "openresponses"
        case _:
            return False


# --- back to where it came from ------------------------------------------------------------------

OWN: dict[str, dict[str, int]] = {
    "anthropic": {"text: Anthropic takes no text that is only white space": 1},
    "bedrock": {
        "input_file: sent by the user, after the tool's result": 4,
        "reasoning: not signed; the models that do not sign take no thoughts back": 10,
    },
}
"""What a conversation loses on its way back to its own provider. Those over Chat Completions are
many providers'; that each gets back what it said is tested with the rest of its traffic."""


@pytest.mark.parametrize("name", [name for name in SIDES if name != "chat"])
def test_a_conversation_that_stays_loses_next_to_nothing(shared: Path, name: str) -> None:
    side = SIDES[name]
    lost: Counter[str] = Counter()
    for items in conversations(shared, name):
        lost.update(f"{loss.what}: {loss.reason}" for loss in side.losses(sent_to(name, items)))
    assert dict(lost) == OWN.get(name, {})


# --- the services over Chat Completions --------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_conversation_moves_to_every_service_over_chat(shared: Path, dialect: Dialect) -> None:
    """Every third conversation of each provider, for the sake of time."""
    for source in SIDES:
        for items in conversations(shared, source)[::3]:
            request = ModelRequest(settings=Request(model="m"), input=Items.of(items))
            body = chat.request_body(request, dialect=dialect).value()
            legal.check_chat(body, dialect)
            losses = chat.losses(request, dialect=dialect)
            for loss in losses:
                check_true(loss, items)
            check_whole(items, body, losses, dialect.name)
