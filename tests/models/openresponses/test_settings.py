"""The settings of an Open Responses request."""

from __future__ import annotations

from typing import Any

from perdure.loop.model import ModelRequest
from perdure.loop.transcript import Items
from perdure.models.openresponses import losses, request_body
from perdure.wire import Request, decode_request, function_tool, user, with_unknown


def body_of(settings: Request) -> Any:
    body: Any = request_body(ModelRequest(settings=settings, input=Items.of([user("hi")]))).value()
    del body["input"], body["stream"], body["store"]
    return body


def told(settings: Request) -> list[tuple[str, str]]:
    request = ModelRequest(settings=settings, input=Items.of([user("hi")]))
    return [(loss.at, loss.what) for loss in losses(request)]


def test_members_that_nobody_knows_go_as_they_are() -> None:
    settings = with_unknown(Request(model="m"), {"acme": 1, "user": "u"})
    assert body_of(settings) == {"model": "m", "acme": 1, "user": "u"}
    assert told(settings) == []


def test_what_the_specification_has_no_member_for_is_lost() -> None:
    settings = with_unknown(Request(model="m"), {"stop": ["x"], "seed": 1, "top_k": 5})
    assert body_of(settings) == {"model": "m"}
    assert told(settings) == [("stop", "stop"), ("seed", "seed"), ("top_k", "top_k")]


def test_a_server_that_takes_more_gets_it_by_the_mark() -> None:
    own = {"perdure:openresponses": {"stop": ["x"], "min_p": 0.1}, "perdure:anthropic": {"y": 1}}
    settings = with_unknown(Request(model="m"), {"stop": ["x"], **own})
    assert body_of(settings) == {"model": "m", "stop": ["x"], "min_p": 0.1}
    assert told(settings) == []


def test_tools_and_choices_of_other_providers_stay_behind() -> None:
    tool = with_unknown(function_tool("add"), {"perdure:anthropic": {"defer_loading": True}})
    settings = decode_request(
        b'{"model":"m","tools":[{"type":"anthropic:web_search_20250305"},{"type":"web_search"}],'
        b'"tool_choice":{"type":"anthropic:tool"}}'
    )
    both = Request(
        model="m", tools=(*(settings.tools or ()), tool), tool_choice=settings.tool_choice
    )
    body = body_of(both)
    assert [one["type"] for one in body["tools"]] == ["web_search", "function"]
    assert body["tool_choice"] == "auto"
    assert "perdure:anthropic" not in body["tools"][1]
    assert told(both) == [
        ("tools[0]", "anthropic:web_search_20250305"),
        ("tools[2].perdure:anthropic", "perdure:anthropic"),
        ("tool_choice", "anthropic:tool"),
    ]
