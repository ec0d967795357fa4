"""Server-sent events: the frames do not depend on how the bytes come."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from perdure.errors import FrameTooLarge
from perdure.wire.sse import SSE_DONE, SSE_HEADERS, Frame, SSEParser, write_sse


def pieces(parser: SSEParser, data: bytes, size: int) -> list[Frame]:
    frames: list[Frame] = []
    for start in range(0, len(data), size):
        frames += parser.feed(data[start : start + size])
    return frames


def parse(data: bytes) -> list[Frame]:
    parser = SSEParser()
    return parser.feed(data) + parser.end()


CASES = [
    pytest.param(b"", [], id="nothing"),
    pytest.param(b'event: e\ndata: {"a":1}\n\n', [Frame("e", b'{"a":1}')], id="usual"),
    pytest.param(b"data: x\n\n", [Frame("", b"x")], id="data alone"),
    pytest.param(b"data:x\n\n", [Frame("", b"x")], id="no space after the colon"),
    pytest.param(b"data:  x \n\n", [Frame("", b" x ")], id="one space is taken"),
    pytest.param(b"data: a\ndata: b\n\n", [Frame("", b"a\nb")], id="several lines"),
    pytest.param(b"data: a\ndata\ndata: b\n\n", [Frame("", b"a\n\nb")], id="a line without colon"),
    pytest.param(b"event: a\nevent: b\ndata: x\n\n", [Frame("b", b"x")], id="the last name counts"),
    pytest.param(b"data: x\nevent: e\n\n", [Frame("e", b"x")], id="the name comes last"),
    pytest.param(b": hi\n\ndata: x\n:\n\n", [Frame("", b"x")], id="comments"),
    pytest.param(
        b"id: 1\nretry: 2\ndata: x\nfoo: bar\n\n", [Frame("", b"x")], id="other fields are ignored"
    ),
    pytest.param(b"event: e\n\ndata: x\n\n", [Frame("", b"x")], id="no data, no frame"),
    pytest.param(b"data\n\ndata:\n\ndata: \n\n", [], id="empty data, no frame"),
    pytest.param(b"event: e\ndata: \n\n", [], id="a name with empty data"),
    pytest.param(b"\n\n\n\ndata: x\n\n\n\n\n", [Frame("", b"x")], id="many blank lines"),
    pytest.param(
        b"data: a\r\n\r\ndata: b\r\rdata: c\n\n",
        [Frame("", b"a"), Frame("", b"b"), Frame("", b"c")],
        id="every line end",
    ),
    pytest.param(
        b"data: a\r\n\ndata: b\n\rdata: c\r\r\ndata: d\n\r\n",
        [Frame("", b"a"), Frame("", b"b"), Frame("", b"c"), Frame("", b"d")],
        id="mixed line ends",
    ),
    pytest.param(
        b"event: e\rdata: a\ndata: b\r\ndata: c\r\n\r",
        [Frame("e", b"a\nb\nc")],
        id="line ends inside a frame",
    ),
    pytest.param(
        "data: \u2028\x85\x0b\x0c\x1c\n\n".encode(),
        [Frame("", "\u2028\x85\x0b\x0c\x1c".encode())],
        id="other separators are text",
    ),
    pytest.param(b"\xef\xbb\xbfdata: x\n\n", [Frame("", b"x")], id="byte order mark"),
    pytest.param(
        b"\xef\xbb\xbfevent: e\ndata: x\n\n\xef\xbb\xbfdata: y\n\n",
        [Frame("e", b"x")],
        id="a mark is one at the start only",
    ),
    pytest.param(b"\xef\xbb\xbf\n\ndata: x\n\n", [Frame("", b"x")], id="a mark on its own"),
    pytest.param(
        "event: \xe9\ndata: \u20ac\n\n".encode(),
        [Frame("\xe9", "\u20ac".encode())],
        id="utf-8",
    ),
    pytest.param(
        b"event: \xff\ndata: x\n\n", [Frame("\ufffd", b"x")], id="a name that is not utf-8"
    ),
    pytest.param(
        b"data: a\n\ndata: [DONE]\n\n",
        [Frame("", b"a"), Frame("", b"[DONE]")],
        id="the end mark is data",
    ),
    pytest.param(b"event: e\ndata: x", [Frame("e", b"x")], id="no blank line at the end"),
    pytest.param(b"event: e\ndata: x\n", [Frame("e", b"x")], id="half a blank line at the end"),
    pytest.param(b"data: x\n\ndat", [Frame("", b"x")], id="a cut field"),
]


@pytest.mark.parametrize(("data", "frames"), CASES)
def test_frames(data: bytes, frames: list[Frame]) -> None:
    assert parse(data) == frames


@pytest.mark.parametrize(("data", "frames"), CASES)
def test_a_cut_anywhere_changes_nothing(data: bytes, frames: list[Frame]) -> None:
    for cut in range(len(data) + 1):
        parser = SSEParser()
        got = parser.feed(data[:cut])
        parser.end()
        twin = parser.copy()
        assert got + parser.feed(data[cut:]) + parser.end() == frames, cut
        assert got + twin.feed(data[cut:]) + twin.end() == frames, cut


SCRAPS = [
    b"data: x",
    b"data:y",
    b"data",
    b"data: ",
    b"event: e",
    b"event:f",
    b": c",
    b"id: 1",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\xef\xbb\xbf",
    b"\xe2\x80\xa8",
    b" ",
    b"d",
    b"\x00",
    b'data: {"a":1}\n\n',
    b"event: z\ndata: q\n\n",
]


def by_lines(data: bytes) -> list[Frame]:
    """The frames, read line by line as the standard describes it."""
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").removeprefix(b"\xef\xbb\xbf")
    frames: list[Frame] = []
    event, lines = b"", list[bytes]()
    for line in [*text.split(b"\n"), b""]:
        if not line:
            if b"\n".join(lines):
                frames.append(Frame(event.decode("utf-8", "replace"), b"\n".join(lines)))
            event, lines = b"", []
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            event = value.removeprefix(b" ")
    return frames


@given(st.lists(st.sampled_from(SCRAPS), max_size=20).map(b"".join), st.data())
def test_any_split_gives_the_frames_of_the_lines(data: bytes, draw: st.DataObject) -> None:
    cuts = draw.draw(st.lists(st.integers(0, len(data)), max_size=8).map(sorted))
    parser = SSEParser()
    frames: list[Frame] = []
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        frames += parser.feed(data[start:end])
    assert frames + parser.end() == by_lines(data)


@given(st.binary(max_size=200), st.integers(1, 9))
def test_any_bytes_are_parsed_alike_in_pieces(data: bytes, size: int) -> None:
    parser = SSEParser()
    assert pieces(parser, data, size) + parser.end() == by_lines(data)


def test_end_leaves_the_parser_as_it_was() -> None:
    parser = SSEParser()
    parser.feed(b"event: e\ndata: a")
    assert parser.end() == parser.end() == [Frame("e", b"a")]
    assert parser.feed(b"b\n\n") == [Frame("e", b"ab")]
    assert parser.end() == []


def test_a_copy_goes_its_own_way() -> None:
    parser = SSEParser()
    parser.feed(b"data: a\r")
    twin = parser.copy()
    assert parser.feed(b"\n\r\n") == [Frame("", b"a")]
    assert twin.feed(b"data: b\n\n") == [Frame("", b"a\nb")]


# --- large frames -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "piece"),
    [(500_000, 1), (5_000_000, 61), (5_000_000, 4096), (5_000_000, 65536), (5_000_000, 6_000_000)],
)
def test_a_large_frame_arrives_in_pieces_of_any_size(size: int, piece: int) -> None:
    data = b"x" * size
    parser = SSEParser()
    frames = pieces(parser, b"event: big\ndata: " + data + b"\n\ndata: y\n\n", piece)
    assert frames == [Frame("big", data), Frame("", b"y")]


def collect(data: bytes, size: int, limit: int) -> tuple[list[Frame], bool]:
    """The frames until the error, and whether there was one."""
    parser = SSEParser(limit)
    frames: list[Frame] = []
    try:
        for start in range(0, len(data), size):
            frames += parser.feed(data[start : start + size])
        frames += parser.end()
    except FrameTooLarge:
        for again in (parser.end, parser.copy().end, lambda: parser.feed(b"data: y\n\n")):
            with pytest.raises(FrameTooLarge):
                again()
        return frames, True
    return frames, False


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 1000])
def test_a_frame_beyond_the_limit_is_an_error_after_the_frames_before_it(piece: int) -> None:
    fits = b"data: " + b"x" * 14
    before = [Frame("", b"a"), Frame("", b"x" * 14)]
    start = b"data: a\n\n" + fits + b"\n\n"
    assert collect(start, piece, limit=20) == (before, False)
    for rest in (fits + b"x", fits + b"x\n\n", fits + b"x\ndata: b\n\ndata: c\n\n"):
        assert collect(start + rest, piece, limit=20) == (before, True)


def test_the_limit_is_16_mebibytes() -> None:
    parser = SSEParser()
    parser.feed(b"data: " + b"x" * (16 * 1024 * 1024 - 6))
    with pytest.raises(FrameTooLarge, match="16777216 bytes"):
        parser.feed(b"x")


# --- writing ---------------------------------------------------------------------------


def test_a_frame_is_written_with_its_name() -> None:
    assert write_sse("response.created", b'{"a":1}') == (
        b'event: response.created\ndata: {"a":1}\n\n'
    )
    assert SSE_DONE == b"data: [DONE]\n\n"


def test_a_name_that_would_break_the_frame_is_left_out() -> None:
    assert write_sse("a\nevent: b", b"x") == b"data: x\n\n"
    assert write_sse("a\rb", b"x") == b"data: x\n\n"
    assert write_sse("", b"x") == b"data: x\n\n"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), st.binary(min_size=1))
def test_what_is_written_is_read_back(event: str, data: bytes) -> None:
    read = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert parse(write_sse(event, data)) == ([Frame(event, read)] if read else [])


def test_the_headers_of_a_stream() -> None:
    assert dict(SSE_HEADERS) == {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache",
        "Connection": "keep-alive",
        "X-Accel-Buffering": "no",
    }
