"""Content in the conventions' form, so that who reads it strictly reads all of it."""

import json

import pytest

from treadle.messages import Response, ToolCall
from treadle.telemetry import content, names
from treadle.telemetry.media import media


def parts_of(message):
    """The parts of a message, as they are told."""
    told = json.loads(content.of_request([message], None, ())[names.INPUT_MESSAGES])
    return told[0]["parts"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://x.org/a.png", {"type": "uri", "modality": "image", "uri": "https://x.org/a.png"}),
        (
            "data:image/png;base64,aGk=",
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aGk="},
        ),
        (
            "data:image/svg+xml;charset=utf-8;base64,aGk=",
            {"type": "blob", "modality": "image", "mime_type": "image/svg+xml", "content": "aGk="},
        ),
        ("data:,hi", {"type": "uri", "modality": "image", "uri": "data:,hi"}),
    ],
)
def test_a_picture_is_where_it_is_or_what_it_is(url, expected):
    assert media({"type": "image_url", "image_url": {"url": url, "detail": "low"}}) == expected
    assert media({"type": "image_url", "image_url": url}) == expected


def test_a_sound_is_what_it_is():
    part = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
    expected = {"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "aGk="}
    assert media(part) == expected
    del part["input_audio"]["format"], expected["mime_type"]
    assert media(part) == expected


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url"},
        {"type": "image_url", "image_url": {"url": 5}},
        {"type": "input_audio", "input_audio": "aGk="},
        {"type": "input_audio", "input_audio": {"format": "wav"}},
        {"type": "file", "file": {"file_id": "f1"}},
    ],
)
def test_any_other_part_keeps_its_own_form(part):
    assert media(part) is None
    assert parts_of({"role": "user", "content": [part]}) == [part]


def test_a_message_has_its_parts_in_order_and_its_name():
    picture = {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}
    message = {
        "role": "user",
        "name": "ada",
        "content": [{"type": "text", "text": "What?"}, picture],
    }
    assert parts_of(message) == [{"type": "text", "content": "What?"}, media(picture)]
    told = content.of_request([message, {"role": "user", "content": "x"}], None, ())
    assert [one.get("name") for one in json.loads(told[names.INPUT_MESSAGES])] == ["ada", None]


def test_half_characters_are_not_told_even_as_escapes():
    told = content.of_response(Response("a \ud800 \U0001f9f5 \x00"))[names.OUTPUT_MESSAGES]
    assert "\\ud800" not in told
    assert json.loads(told)[0]["parts"][0]["content"] == "a ? \U0001f9f5 \x00"
    told.encode()


def test_half_characters_are_not_told_beside_what_is_no_json_either():
    told = content.as_json({"\ud800": float("nan"), 1: "\udfff"})
    assert json.loads(told) == {"?": "nan", "1": "?"}


@pytest.mark.parametrize(("written", "told"), [("", "{}"), ('{"n": 1}', '{"n": 1}'), ("no", "no")])
def test_arguments_are_told_as_the_model_wrote_them_and_nothing_as_no_arguments(written, told):
    assert content.of_call(ToolCall("c1", "t", written)) == {names.TOOL_CALL_ARGUMENTS: told}
