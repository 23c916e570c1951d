"""What the tests of sessions write into them."""

from treadle.sessions import StoredTurn


def user(text="Hi"):
    return {"role": "user", "content": text}


def answer(text="Hello"):
    return {"role": "assistant", "content": text}


def system(text="Be brief."):
    return {"role": "system", "content": text}


def exchange(call_id="a", result="noon"):
    """A call and its result."""
    function = {"name": "clock", "arguments": "{}"}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def image(name="cat"):
    return {"type": "image_url", "image_url": {"url": f"https://example.org/{name}.png"}}


def with_image(name="cat"):
    return {"role": "user", "content": [{"type": "text", "text": "Look"}, image(name)]}


def turn(start=0, *messages, **fields):
    return StoredTurn(start, list(messages), **fields)


def ended(messages, memo=None, **changes):
    """What `Session.save` gets from a run that has ended."""
    fields = {
        "messages": messages,
        "memo": memo or {},
        "status": "ok",
        "stop_reason": "completed",
        "run_id": "r1",
        "iterations": 1,
        "tool_calls_count": 0,
        "usage": {"input_tokens": 5},
        "error": None,
        "pause": None,
        "at": 1_000.5,
    }
    return fields | changes


def run(session, *messages, **changes):
    """A run that appends messages to what it sees."""
    loaded = session.load()
    memo = changes.pop("memo", loaded["memo"])
    session.save(loaded, ended([*loaded["messages"], *messages], memo, **changes))


def compacted(covered, summary="They spoke of cats.", attachments=()):
    """The memo of a run whose first messages were summarized."""
    state = {"covered": covered, "summary": summary, "attachments": list(attachments)}
    return {"session.compaction": state}


def summary(text="They spoke of cats.", *attachments):
    """The message that a run sees in place of the messages that were summarized."""
    text = f"[Previous conversation summary]\n{text}"
    parts = [{"type": "text", "text": text}, *attachments]
    return {"role": "user", "content": parts if attachments else text}


class Counting:
    """A store that counts the turns that are read from another one."""

    def __init__(self, store):
        self._store = store
        self.turns_read = 0

    def __getattr__(self, name):
        return getattr(self._store, name)

    def turns(self, session_id, **options):
        found = self._store.turns(session_id, **options)
        self.turns_read += len(found)
        return found
