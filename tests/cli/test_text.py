"""Text on its way to a terminal."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from perdure.cli.text import Wrapper, one_line, visible


@given(st.text(st.characters(codec=None)))
def test_nothing_that_is_shown_can_steer_a_terminal(text: str) -> None:
    shown = visible(text)
    left = {c for c in shown if unicodedata.category(c) in ("Cc", "Cs")}
    assert left <= {"\n", "\t"}
    assert unicodedata.bidirectional is not None
    assert not {"LRO", "RLO", "LRE", "RLE"} & {unicodedata.bidirectional(c) for c in shown}
    shown.encode()


@given(st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cc", "Cs", "Cf"])))
def test_plain_text_is_shown_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_ends_of_lines_and_emoji_are_kept() -> None:
    assert visible("a\r\nb\t👩‍👩‍👧 é") == "a\nb\t👩‍👩‍👧 é"


def test_one_line_has_no_ends_of_lines() -> None:
    assert one_line(" a\n\tb\x0bc\u2028d\x1b ") == "a b c d␛"


def wrap(text: str, width: int, step: int = 1) -> str:
    """The text, wrapped while it comes in pieces."""
    wrapper = Wrapper(lambda: width)
    pieces = [wrapper.feed(text[at : at + step]) for at in range(0, len(text), step)]
    return "".join(pieces) + wrapper.end()


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        ("one two three", "one two\nthree"),
        ("one two three four", "one two\nthree four"),
        ("1234567890 x", "1234567890\nx"),
        ("123456789 x", "123456789\nx"),
        ("12345678 x", "12345678 x"),
        ("one  two", "one  two"),
        ("one      two three", "one\ntwo three"),
        ("  indented text", "  indented\ntext"),
        ("one \n two\n\n\nthree", "one\n two\n\n\nthree"),
        ("a word-that-is-longer b", "a\nword-that-is-longer\nb"),
        ("word-that-is-longer-still", "word-that-is-longer-still"),
        ("日本語のテキスト", "日本語のテ\nキスト"),
        ("ab日本語のテキスト", "ab日本語の\nテキスト"),
        ("```\nsome long line of code\n```\nand some words", None),
        ("| a table | that is wide |", None),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_lines_break_between_words(text: str, wrapped: str | None, step: int) -> None:
    if wrapped is None:
        wrapped = text.replace("and some words", "and some\nwords")
    assert wrap(text, 10, step) == wrapped


@given(st.text("ab \n`|日", max_size=60), st.integers(1, 12), st.integers(1, 60))
def test_wrapping_changes_white_space_alone_and_not_with_the_pieces(
    text: str, width: int, step: int
) -> None:
    wrapped = wrap(text, width, step)
    assert wrapped == wrap(text, width, 1)
    assert "".join(wrapped.split()) == "".join(text.split())


@given(st.lists(st.text("abc", min_size=1, max_size=10), max_size=30), st.integers(10, 30))
def test_no_line_of_short_words_is_too_long_nor_breaks_too_early(
    words: list[str], width: int
) -> None:
    lines = wrap(" ".join(words), width).split("\n")
    assert max(map(len, lines), default=0) <= width
    for line, after in pairwise(lines):
        assert len(line) + 1 + len(after.split()[0]) > width


def test_a_word_is_written_when_it_is_whole_and_code_at_once() -> None:
    wrapper = Wrapper(lambda: 20)
    assert wrapper.feed("one tw") == "one"
    assert wrapper.feed("o ") == " two"
    assert wrapper.feed("\n```py") == "\n```py"
    assert wrapper.feed("thon\nco") == "thon\nco"
