"""Bodies of requests to OpenAI's chat completions: checked by the SDK's types, and read back."""

from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from tests.providers.typed_dicts import strict_adapter

_WHOLE, _STREAMED = map(
    strict_adapter, (CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming)
)


OF_OTHERS = {"reasoning_content", "reasoning"}
"""Keys of messages that compatible servers have, and that go back to them as they are."""


def check_body(body):
    """Check a body; raises if the SDK has no such parameter, message or part."""
    messages = [
        {key: value for key, value in message.items() if key not in OF_OTHERS}
        for message in body["messages"]
    ]
    body = {**body, "messages": messages}
    (_STREAMED if body.get("stream") else _WHOLE).validate_python(body)


def messages_of(body):
    """The history: bodies have it as it is."""
    return body["messages"]
