"""A tool that returns an image, with an official client: what OpenAI's wire takes, and how often."""

import json

import pytest

from treadle import Ok, tool
from treadle.messages.parts import placeholder
from treadle.testing import check_history

pytestmark = pytest.mark.wire

QUESTION = [{"role": "user", "content": "What do you see?"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@tool
def shoot():
    """Take a picture."""
    return ["The garden:", IMAGE]


def test_an_image_arrives_in_a_user_message_after_the_result(wire, ask):
    """OpenAI takes only text in tool messages, so the media follow all results of the exchange."""
    two = [{"name": "shoot", "arguments": json.dumps({})}] * 2
    wire.script({"toolCalls": two}, "A tree.")

    result = ask(QUESTION, tools=[shoot])

    assert isinstance(result, Ok)
    assert result.response.content == "A tree."
    check_history(result.messages)
    _, second = wire.journal
    assert second["response"]["status"] == 200
    asked, first, repeated, media = second["body"]["messages"][1:]
    assert [one["role"] for one in (asked, first, repeated, media)] == [
        "assistant", "tool", "tool", "user",
    ]  # fmt: skip
    assert first["content"] == f"The garden:\n{placeholder(IMAGE)}"
    assert isinstance(repeated["content"], str)
    assert [part["type"] for part in media["content"]] == ["text", "text", "image_url"]
    assert media["content"][-1] == IMAGE
    assert result.messages[2]["content"] == [{"type": "text", "text": "The garden:"}, IMAGE]
