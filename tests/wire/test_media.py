"""Media in the parts of a message, and what else of other formats stands on the wire."""

from __future__ import annotations

import pytest

from perdure.wire import InputFile, InputImage, UnknownPart, decode_item
from perdure.wire.foreign import nested_citation, thought_detail
from perdure.wire.media import DataUrl, Media, data_url, is_text, media_of, read_data_url
from perdure.wire.outputs import error_output, is_error


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("data:image/png;base64,AAAA", DataUrl("image/png", "AAAA")),
        ("DATA:IMAGE/PNG;BASE64,AAAA", DataUrl("image/png", "AAAA")),
        ("data:text/plain;charset=utf-8;base64,aGk=", DataUrl("text/plain", "aGk=")),
        ("data:text/plain,hi%21", DataUrl("text/plain", "aGkh")),
        ("data:;base64,AAAA", DataUrl("", "AAAA")),
        ("data:image/png", None),
        ("https://example.org/data:,x", None),
    ],
)
def test_a_data_url_is_read_however_it_is_spelled(url: str, found: DataUrl | None) -> None:
    assert read_data_url(url) == found


def test_a_data_url_that_is_written_is_read_again() -> None:
    assert read_data_url(data_url("image/gif", "AAAA")) == DataUrl("image/gif", "AAAA")
    assert read_data_url(data_url("", "AAAA")) == DataUrl("application/octet-stream", "AAAA")


@pytest.mark.parametrize(
    ("part", "media"),
    [
        (
            InputImage(image_url="https://a/b.webp?x=1"),
            Media("image/webp", url="https://a/b.webp?x=1"),
        ),
        (InputFile(file_data="JVBERi0x"), Media("application/pdf", data="JVBERi0x")),
        (
            InputFile(file_data="AAAA", filename="a.csv"),
            Media("text/csv", data="AAAA", name="a.csv"),
        ),
        (InputFile(file_id="f1"), Media(file_id="f1")),
    ],
)
def test_media_are_the_same_however_a_part_gives_them(
    part: InputImage | InputFile, media: Media
) -> None:
    assert media_of(part) == media


def test_a_sound_is_a_part_that_the_wire_does_not_know() -> None:
    raw = (
        '{"type":"message","role":"user","content":'
        '[{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}}]}'
    )
    part = decode_item(raw).content[0]  # type: ignore[union-attr, index]
    assert isinstance(part, UnknownPart)
    assert media_of(part) == Media("audio/mp3", data="AAAA")
    assert is_text(Media("application/json"))
    assert not is_text(Media("audio/mp3"))


def test_an_error_says_so_once() -> None:
    assert error_output("no") == error_output(error_output("no")) == "Error: no"
    assert is_error("Error: no")
    assert not is_error("no Error: ")


def test_what_stands_below_a_type_elsewhere() -> None:
    cited = {"type": "url_citation", "url": "u", "title": "t"}
    assert nested_citation(cited) == {
        "type": "url_citation",
        "url_citation": {"url": "u", "title": "t"},
    }
    assert nested_citation({"type": "file", "url": "u"}) == {"type": "file", "url": "u"}


@pytest.mark.parametrize(
    ("kind", "member"), [("reasoning.encrypted", "data"), ("reasoning.text", "signature")]
)
def test_a_sealed_thought_goes_to_the_member_of_its_kind(kind: str, member: str) -> None:
    made = thought_detail({"type": kind, "index": 0}, kind, text="", summary="", sealed="s")
    assert made == {"type": kind, "index": 0, member: "s"}
