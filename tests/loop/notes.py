"""A tool that notes a number, and responses that call it and report their usage."""

from treadle import tool
from treadle.testing import call, calls


@tool
def note(n: int):
    return f"noted {n}"


def notes(*numbers):
    """A response that notes some numbers."""
    return calls(*(call("note", f"i{n}", n=n) for n in numbers))


def endless(messages, **opts):
    """A model that always notes another number."""
    return notes(len(messages))


def completion(message, cost=None, given=2, made=3):
    """A chat completion with its tokens, and its cost as OpenRouter reports it."""
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    usage = {"prompt_tokens": given, "completion_tokens": made}
    usage |= {} if cost is None else {"cost": cost}
    return {"choices": [{"message": message}], "usage": usage}
