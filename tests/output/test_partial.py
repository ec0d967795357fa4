"""JSON that is still being written."""

from __future__ import annotations

import json

from hypothesis import given, settings, strategies as st

from perdure.output import PartialJson

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


def values(text: str) -> list[object]:
    partial = PartialJson()
    found: list[object] = []
    for character in text:
        partial.feed(character)
        value = partial.value()
        if value is not None and (not found or found[-1] != value):
            found.append(value)
    return found


def test_each_value_is_further_than_the_one_before() -> None:
    assert values('{"a": "hi", "n": [12, 3], "ok": true}') == [
        {},
        {"a": ""},
        {"a": "h"},
        {"a": "hi"},
        {"a": "hi", "n": []},
        {"a": "hi", "n": [12]},
        {"a": "hi", "n": [12, 3]},
        {"a": "hi", "n": [12, 3], "ok": True},
    ]


def test_a_code_fence_is_skipped_and_other_text_is_no_answer() -> None:
    assert values('```json\n{"a": "b"}\n```')[-1] == {"a": "b"}
    assert values('Here it is: {"a": 1}') == []


@settings(max_examples=40, deadline=None)
@given(OBJECTS, st.booleans())
def test_the_last_value_is_the_object_and_no_cut_is_an_error(
    value: dict[str, object], escaped: bool
) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    partial = PartialJson()
    for character in text:
        partial.feed(character)
        partial.value()
    assert partial.value() == json.loads(text)


@settings(max_examples=40, deadline=None)
@given(OBJECTS, st.data())
def test_how_the_text_is_cut_makes_no_difference(
    value: dict[str, object], data: st.DataObject
) -> None:
    text = json.dumps(value)
    place = data.draw(st.integers(0, len(text)))
    whole, pieces = PartialJson(), PartialJson()
    whole.feed(text[:place])
    for character in text[:place]:
        pieces.feed(character)
    assert whole.value() == pieces.value()


@settings(max_examples=40, deadline=None)
@given(st.text())
def test_nothing_that_a_model_says_is_an_error(text: str) -> None:
    partial = PartialJson()
    partial.feed(text)
    value = partial.value()
    try:
        whole = json.loads(text)
    except ValueError:
        return
    assert not isinstance(whole, dict | list) or value == whole
