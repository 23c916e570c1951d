"""Content parts: what is one, its place in a text, and the form for backends that take text alone."""

import pytest

from treadle.messages import sha256
from treadle.messages.parts import as_text_results, content_parts, is_content_part, placeholder

PNG = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": PNG}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}
FILE = {
    "type": "file",
    "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
}
TEXT = {"type": "text", "text": "Hi"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "1"}
WITH_IMAGE = {"role": "tool", "tool_call_id": "c2", "content": [TEXT, IMAGE]}


@pytest.mark.parametrize(
    "part",
    [TEXT, IMAGE, AUDIO, FILE, {"type": "file", "file": {"file_id": "f1"}}],
    ids=lambda part: part["type"],
)
def test_the_four_kinds_of_parts_are_recognized(part):
    assert is_content_part(part)
    assert content_parts(part) == [part]
    assert content_parts((part, "and")) == [part, {"type": "text", "text": "and"}]


@pytest.mark.parametrize(
    "value",
    [
        {"type": "text"},
        {"type": "text", "text": 1},
        {"type": "text", "text": "Hi", "author": "Ann"},
        {"type": "image_url", "image_url": PNG},
        {"type": "image_url", "image_url": {"href": PNG}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg=="}},
        {"type": "file", "file": {"name": "a.pdf"}},
        {"type": "image", "image": {"url": PNG}},
        {"type": ["text"], "text": "Hi"},
        {"kind": "text", "text": "Hi"},
        [],
        ["only", "texts"],
        [IMAGE, 1],
        [IMAGE, {"type": "text"}],
        {"image": IMAGE},
    ],
)
def test_other_values_are_ordinary_json(value):
    assert content_parts(value) is None


def test_a_placeholder_has_the_media_type_the_size_and_a_digest():
    data = PNG.partition(",")[2]
    assert placeholder(IMAGE) == f"[image/png, 8 bytes, {sha256(data.encode())[:8]}]"
    assert placeholder(AUDIO).startswith("[audio/wav, 4 bytes, ")
    assert placeholder(FILE).startswith("[a.pdf, application/pdf, 5 bytes, ")
    assert placeholder({"type": "file", "file": {"file_id": "f1"}}) == "[file f1]"


def test_placeholders_of_different_parts_differ_and_those_of_equal_parts_are_equal():
    other = {"type": "image_url", "image_url": {"url": PNG.replace("iVBO", "iVBP")}}
    assert placeholder(other) != placeholder(IMAGE)
    assert placeholder(dict(IMAGE)) == placeholder(IMAGE)


def test_a_link_is_shown_shortened_with_a_digest():
    long = [f"https://example.com/{'a' * 100}{end}.png" for end in "xy"]
    shown = [placeholder({"type": "image_url", "image_url": {"url": url}}) for url in long]
    assert shown[0].startswith("[image at https://example.com/aaa")
    assert len(shown[0]) < 110
    assert shown[0] != shown[1]


def user(*content):
    return {"role": "user", "content": list(content)}


def text(content):
    return {"type": "text", "text": content}


HEAD = text("Content of the tool results:")
AS_TEXT = {**WITH_IMAGE, "content": f"Hi\n{placeholder(IMAGE)}"}


def test_media_follow_the_results_of_their_exchange_in_a_user_message():
    asked = {"role": "assistant", "content": None, "tool_calls": []}
    given = [asked, WITH_IMAGE, RESULT, {"role": "assistant", "content": "So."}, RESULT]
    media = user(HEAD, text(placeholder(IMAGE)), IMAGE)
    assert as_text_results(given) == [asked, AS_TEXT, RESULT, media, *given[3:]]
    assert as_text_results([WITH_IMAGE]) == [AS_TEXT, media]


def test_they_are_joined_with_a_user_message_that_follows():
    media = (HEAD, text(placeholder(IMAGE)), IMAGE)
    following = {"role": "user", "content": "Go on.", "name": "Ann"}
    joined = {**user(*media, text("Go on.")), "name": "Ann"}
    assert as_text_results([WITH_IMAGE, following]) == [AS_TEXT, joined]
    assert as_text_results([WITH_IMAGE, user(TEXT)]) == [AS_TEXT, user(*media, TEXT)]


def test_parts_that_are_text_alone_need_no_user_message():
    given = {**RESULT, "content": [TEXT, TEXT]}
    assert as_text_results([given]) == [{**RESULT, "content": "Hi\nHi"}]


def test_the_given_messages_are_not_changed():
    given = [WITH_IMAGE, user(TEXT)]
    as_text_results(given)
    assert given == [WITH_IMAGE, user(TEXT)]
    assert WITH_IMAGE["content"] == [TEXT, IMAGE]
