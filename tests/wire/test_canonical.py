"""Canonical JSON: RFC 8785, over what I-JSON allows."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from perdure.errors import NotIJson
from perdure.wire.canonical import canonical_json, canonicalize, format_number

# --- numbers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1.0, "1"),
        (-1.5, "-1.5"),
        (0.1, "0.1"),
        (1e-6, "0.000001"),
        (1.5e-6, "0.0000015"),
        (1e-7, "1e-7"),
        (1.25e-7, "1.25e-7"),
        (123456.789, "123456.789"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (1.2e20, "120000000000000000000"),
        (1e21, "1e+21"),
        (-1.5e21, "-1.5e+21"),
        (1e23, "1e+23"),
        (333333333.33333329, "333333333.3333333"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (float(2**60), "1152921504606847000"),
        (float(2**53), "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
    ],
)
def test_numbers_are_written_as_ecmascript_writes_them(number: float, text: str) -> None:
    assert format_number(number) == text
    assert canonical_json(number) == text.encode()


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_not_finite_is_refused(number: float) -> None:
    with pytest.raises(NotIJson):
        format_number(number)
    with pytest.raises(NotIJson) as raised:
        canonical_json({"a": [1, number]})
    assert raised.value.path == "/a/1"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_number_reads_back(number: float) -> None:
    assert float(format_number(number)) == number


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("9007199254740992", "9007199254740992"),
        ("9007199254740994", "9007199254740994"),
        ("1152921504606846976", "1152921504606847000"),
        ("1152921504606847000", "1152921504606847000"),
        ("1.152921504606847e18", "1152921504606847000"),
        ("9007199254740992.5", "9007199254740992"),
        ("100000000000000000000000", "1e+23"),
        ("1e23", "1e+23"),
        ("1E2", "100"),
        ("0.50", "0.5"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("0e9999999999999999999999", "0"),
        ("1e-99999999999999999999", "0"),
        ("0.1000000000000000055511151231257827", "0.1"),
    ],
)
def test_a_number_that_a_double_holds_passes(source: str, text: str) -> None:
    assert canonicalize(source) == text.encode()
    assert canonicalize(f'{{"a":[{source}]}}') == f'{{"a":[{text}]}}'.encode()


@pytest.mark.parametrize(
    "source",
    [
        "9007199254740993",
        "9007199254740993.0",
        "9.007199254740993e15",
        "-9007199254740993",
        "1152921504606846977",
        "1152921504606847001",
        "1e400",
        "-1e400",
        "1" + "0" * 400,
        "7" * 5000,
        "NaN",
        "Infinity",
        "-Infinity",
    ],
)
def test_a_number_that_no_double_holds_is_refused_in_any_spelling(source: str) -> None:
    with pytest.raises(NotIJson) as raised:
        canonicalize(f'{{"x":[0,{source}]}}')
    assert raised.value.path == "/x/1"


def test_whole_numbers_of_python_are_judged_by_value() -> None:
    assert canonical_json([2**53, -(2**53), 2**60, 1152921504606847000, 10**22]) == (
        b"[9007199254740992,-9007199254740992,1152921504606847000,1152921504606847000,1e+22]"
    )
    for number in (2**53 + 1, 2**60 + 1, 10**400, 10**5000):
        with pytest.raises(NotIJson) as raised:
            canonical_json({"n": number})
        assert raised.value.path == "/n"


# --- names and strings ---------------------------------------------------------------


def test_members_are_sorted_by_utf16_code_units() -> None:
    # By code point U+FB33 would come before U+1F600; in UTF-16 the latter begins with D83D.
    value = {"\ufb33": 1, "\U0001f600": 2, "\r": 3, "1": 4, "\x80": 5, "\u20ac": 6, "\xf6": 7}
    text = canonical_json(value)
    assert text == canonicalize(json.dumps(value))
    assert [*json.loads(text)] == [
        "\r",
        "1",
        "\x80",
        "\xf6",
        "\u20ac",
        "\U0001f600",
        "\ufb33",
    ]


def test_strings_have_the_fewest_escapes() -> None:
    text = "".join(map(chr, range(0x20))) + '"\\/\x7f\x80\u2028\ufffd\U0001f600<>&'
    written = canonical_json(text)
    assert written == canonicalize(json.dumps(text))
    assert written.decode() == (
        '"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000b\\f\\r\\u000e'
        "\\u000f\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019\\u001a"
        '\\u001b\\u001c\\u001d\\u001e\\u001f\\"\\\\/\x7f\x80\u2028\ufffd\U0001f600<>&"'
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (' { "b" : [ ] , "a" : { } }\r\n', '{"a":{},"b":[]}'),
        ('"\\u0041\\/"', '"A/"'),
        ('"\\ud83d\\ude00"', '"\U0001f600"'),
        ("true", "true"),
        ("null", "null"),
        ('{"b":1,"a":0.5}', '{"a":0.5,"b":1}'),
        ('{"id":"call_12345678901234567890"}', '{"id":"call_12345678901234567890"}'),
    ],
)
def test_text_is_rewritten(source: str, text: str) -> None:
    assert canonicalize(source) == canonicalize(source.encode()) == text.encode()


# --- what is not I-JSON -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "path", "reason"),
    [
        ('{"a":1,"a":1}', "/a", "twice"),
        ('{"x":[{"a/b~":1,"c":2,"a/b~":3}]}', "/x/0/a~1b~0", "twice"),
        ('{"a":1,"\\u0061":2}', "/a", "twice"),
        ('{"a":"\\ud83d"}', "/a", "surrogate"),
        ('{"a":["\\ude00\\ud83d"]}', "/a/0", "surrogate"),
        ('{"b":{"\\ud83d":1}}', "/b", "surrogate"),
        ("[1,]", "", "malformed"),
        ("", "", "malformed"),
        ("1 2", "", "malformed"),
        ('"\x01"', "", "malformed"),
        ("\ufeff1", "", "malformed"),
        (b'["\xff"]', "", "UTF-8"),
        (b'["\xed\xa0\xbd"]', "", "UTF-8"),
        ("[" * 100_000, "", "deeply"),
    ],
)
def test_text_that_is_not_i_json_is_refused(source: str | bytes, path: str, reason: str) -> None:
    with pytest.raises(NotIJson, match=reason) as raised:
        canonicalize(source)
    assert raised.value.path == path


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("\ud800", ""),
        ({"a": ["\udc00"]}, "/a/0"),
        ({"\ud800": 1}, ""),
        ({1: 2}, ""),
        ({"a": {None: 2}}, "/a"),
        ([b"bytes"], "/0"),
        ([{1, 2}], "/0"),
        ({"a": object()}, "/a"),
    ],
)
def test_a_value_that_is_not_json_is_refused(value: object, path: str) -> None:
    with pytest.raises(NotIJson) as raised:
        canonical_json(value)
    assert raised.value.path == path


def test_a_tuple_is_a_list() -> None:
    assert canonical_json({"a": (1, ("b", 0.5))}) == b'{"a":[1,["b",0.5]]}'


# --- properties ---------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda children: st.lists(children) | st.dictionaries(texts, children),
)


def plainly(value: Any) -> str:
    """Canonical JSON written as its definition says, without a thought for speed."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{plainly(name)}:{plainly(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(plainly, value)) + "]"
    if isinstance(value, float):
        return format_number(value)
    return json.dumps(value, ensure_ascii=False)


@given(values)
def test_every_way_gives_the_one_spelling(value: object) -> None:
    text = canonical_json(value)
    assert text.decode() == plainly(value)
    assert json.loads(text, parse_int=float) == value
    assert canonicalize(text) == text
    for source in (
        json.dumps(value),
        json.dumps(value, ensure_ascii=False, indent=1),
        json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    ):
        assert canonicalize(source) == text


@given(st.text() | st.binary() | st.text('{}[],:"0123456789.eE+- \\ud8nul'))
def test_any_text_is_canonical_afterwards_or_refused(source: str | bytes) -> None:
    try:
        text = canonicalize(source)
    except NotIJson:
        return
    assert canonicalize(text) == text


# --- the hashes of other implementations -------------------------------------------------

ENVELOPE = {"id", "type", "parent", "parents", "ts"}


def entry_id(entry: dict[str, Any]) -> str:
    body = {name: value for name, value in entry.items() if name not in ENVELOPE}
    head = {name: entry[name] for name in ("type", "parent", "parents", "ts") if entry.get(name)}
    content = hashlib.sha256(canonical_json(body)).hexdigest()
    head |= {"parent": entry["parent"], "content": f"sha256:{content}"}
    return "sha256:" + hashlib.sha256(canonical_json(head)).hexdigest()


def test_recorded_entries_have_the_ids_that_canonical_json_gives(shared: Path) -> None:
    checked = 0
    for file in sorted((shared / "fixtures/agentsession/sessions").glob("*.jsonl")):
        for line in file.read_bytes().splitlines()[1:]:
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # two files hold a cut line
            if "id" in entry:
                assert entry_id(entry) == entry["id"], file.name
                assert canonicalize(line) == line, file.name
                checked += 1
    assert checked > 200
