"""The content blocks of a result are what the client reads as the same parts."""

import pytest
from mcp import types

from treadle.mcp.blocks import blocks_of
from treadle.messages import ToolResult
from treadle.tools.return_value import read_call_result

PARTS = [
    {"type": "text", "text": "So."},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
    },
]


def sent(*parts):
    """The blocks, checked by the SDK."""
    made = {"content": blocks_of(ToolResult("c", "text", parts=parts))}
    return types.CallToolResult.model_validate(made)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part["type"])
def test_a_part_comes_back_as_it_was(part):
    assert read_call_result(sent(part)) == ([part], False)


def test_the_url_of_an_image_is_a_link():
    (link,) = sent({"type": "image_url", "image_url": {"url": "https://example.com/a"}}).content
    assert (link.type, str(link.uri)) == ("resource_link", "https://example.com/a")


def test_a_file_that_only_the_provider_has_is_named():
    (text,) = sent({"type": "file", "file": {"file_id": "file-1"}}).content
    assert text.text == "[file file-1]"


def test_a_result_without_parts_is_a_text():
    assert blocks_of(ToolResult("c", "So.")) == [{"type": "text", "text": "So."}]
