"""Responses in the form of each API, with any finish reason and calls, and a server that sends them."""

import json
from typing import NamedTuple

from tests.http_server import ScriptedServer

from treadle.providers import backend

APIS = ("openai", "openai-responses", "anthropic", "gemini", "ollama")
WORDS = {
    "openai": ("stop", "length", "content_filter", "network_error", "some_new_word", None),
    "openai-responses": (
        "completed",
        "max_output_tokens",
        "content_filter",
        "failed",
        "some_new_word",
        None,
    ),
    "anthropic": (
        "end_turn",
        "max_tokens",
        "refusal",
        "pause_turn",
        "some_new_word",
        None,
    ),
    "gemini": ("STOP", "MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL", "OTHER", None),
    "ollama": ("stop", "length", "some_new_word", None),
}
"""The finish reasons of each API: complete, cut, filtered, failed or paused, unknown, and none."""
COMPLETE = {
    "openai": "stop",
    "openai-responses": "completed",
    "anthropic": "end_turn",
    "gemini": "STOP",
    "ollama": "stop",
}
JSON, EVENTS, LINES = "application/json", "text/event-stream", "application/x-ndjson"


class Said(NamedTuple):
    """What a model says in one response.

    Args:
        text: its text.
        calls: id, name and arguments of each call; arguments that are None never began.
        word: the finish reason; None sends none.
        error: an error that comes with it, in the form of the API.
    """

    text: str = ""
    calls: tuple = ()
    word: str | None = None
    error: object = None


def body(api, said, *, streamed):
    """The content type and the text of a response."""
    if streamed:
        pieces = STREAMED[api](said)
        if api == "ollama":
            return LINES, "".join(f"{json.dumps(one)}\n" for one in pieces)
        named = api in ("anthropic", "openai-responses")
        lines = [(f"event: {one['type']}\n" if named else "") + sse(one) for one in pieces]
        return EVENTS, "".join(lines) + (sse("[DONE]") if api == "openai" else "")
    return JSON, json.dumps(WHOLE[api](said))


def sse(data):
    """One event of a stream."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


def given(arguments):
    return json.loads(arguments or "{}")


def with_error(made, said):
    return made if said.error is None else {**made, "error": said.error}


# Chat completions

USED = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}


def openai_whole(said):
    calls = [
        {"id": i, "type": "function", "function": {"name": n, "arguments": a or ""}}
        for i, n, a in said.calls
    ]
    message = {"role": "assistant", "content": said.text or None}
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message, "finish_reason": said.word}
    made = {"id": "r", "object": "chat.completion", "created": 1, "model": "m"}
    return with_error({**made, "choices": [choice], "usage": USED}, said)


def openai_chunk(delta, word=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": word, **more}
    made = {"id": "r", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**made, "choices": [choice]}


def openai_streamed(said):
    yield openai_chunk({"role": "assistant", "content": ""})
    for piece in halves(said.text):
        yield openai_chunk({"content": piece})
    for index, (call_id, name, arguments) in enumerate(said.calls):
        begun = {"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        yield openai_chunk({"tool_calls": [{"index": index, **begun}]})
        for piece in halves(arguments or ""):
            more = {"index": index, "function": {"arguments": piece}}
            yield openai_chunk({"tool_calls": [more]})
    if said.word is not None:
        yield openai_chunk({}, said.word)
    if said.error is not None:
        yield {"error": said.error}
    yield {**openai_chunk({}), "choices": [], "usage": USED}


def halves(text):
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]


# Responses


def items(said, status="completed"):
    if said.text:
        part = {"type": "output_text", "text": said.text, "annotations": []}
        yield {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": status,
            "content": [part],
        }
    for call_id, name, arguments in said.calls:
        made = {"type": "function_call", "id": f"f{call_id}", "call_id": call_id, "name": name}
        yield {**made, "arguments": arguments or "", "status": "completed" if arguments else status}


def responses_whole(said):
    word = said.word or "completed"
    is_status = word in ("completed", "failed", "cancelled", "queued", "in_progress", "incomplete")
    status = word if is_status else "incomplete"
    made = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": status}
    output = list(items(said, "completed" if status == "completed" else "incomplete"))
    details = {"incomplete_details": None if is_status else {"reason": word}}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "metadata": {}}
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }
    return {**made, **more, **details, "output": output, "usage": usage, "error": said.error}


def responses_streamed(said):
    whole = responses_whole(said)
    events = [{"type": "response.created", "response": {**whole, "output": []}}]
    for index, item in enumerate(whole["output"]):
        at = {"output_index": index}
        if item["type"] == "function_call":
            begun = {**item, "arguments": "", "status": "in_progress"}
            events.append({"type": "response.output_item.added", **at, "item": begun})
            events += [
                {
                    "type": "response.function_call_arguments.delta",
                    **at,
                    "item_id": item["id"],
                    "delta": piece,
                }
                for piece in halves(item["arguments"])
            ]
        events.append({"type": "response.output_item.done", **at, "item": item})
    if said.error is not None and whole["status"] != "failed":
        inner = {"error": said.error} if "type" in said.error else said.error
        events.append({**inner, "type": "error", "param": None})
    elif said.word is not None:
        known = ("completed", "failed", "incomplete")
        kind = whole["status"] if whole["status"] in known else "incomplete"
        events.append({"type": f"response.{kind}", "response": whole})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


# Anthropic


def anthropic_blocks(said):
    if said.text:
        yield {"type": "text", "text": said.text}
    for call_id, name, arguments in said.calls:
        yield {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def anthropic_whole(said):
    blocks = [
        {**block, "input": given(block["input"])} if "input" in block else block
        for block in anthropic_blocks(said)
    ]
    made = {"id": "r", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    usage = {"input_tokens": 9, "output_tokens": 3}
    return with_error(
        {**made, "stop_reason": said.word, "stop_sequence": None, "usage": usage}, said
    )


def anthropic_streamed(said):
    usage = {"input_tokens": 9, "output_tokens": 1}
    message = {**anthropic_whole(Said()), "usage": usage}
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(anthropic_blocks(said)):
        at = {"index": index}
        is_call = block["type"] == "tool_use"
        begun = {**block, "input": {}} if is_call else {**block, "text": ""}
        yield {"type": "content_block_start", **at, "content_block": begun}
        for piece in halves((block["input"] or "") if is_call else block["text"]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            if not is_call:
                delta = {"type": "text_delta", "text": piece}
            yield {"type": "content_block_delta", **at, "delta": delta}
        yield {"type": "content_block_stop", **at}
    if said.error is not None:
        yield {"type": "error", "error": said.error}
    if said.word is not None:
        delta = {"stop_reason": said.word, "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}}
        yield {"type": "message_stop"}


# Gemini


def gemini_part(said, parts, word):
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0}
    candidate |= {} if word is None else {"finishReason": word}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m"}


def gemini_parts(said):
    if said.text:
        yield {"text": said.text}
    for call_id, name, arguments in said.calls:
        args = {} if arguments is None else {"args": given(arguments)}
        yield {"functionCall": {"id": call_id, "name": name, **args}}


def gemini_whole(said):
    return with_error(gemini_part(said, list(gemini_parts(said)), said.word), said)


def gemini_streamed(said):
    for part in gemini_parts(said):
        yield gemini_part(said, [part], None)
    if said.error is not None:
        yield {"error": said.error}
    yield gemini_part(said, [{"text": ""}], said.word)


# Ollama


def ollama_message(text, calls):
    made = [
        {"id": i, "function": {"name": n} | ({} if a is None else {"arguments": given(a)})}
        for i, n, a in calls
    ]
    return {"role": "assistant", "content": text} | ({"tool_calls": made} if made else {})


def ollama_whole(said):
    made = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": True}
    made |= {} if said.word is None else {"done_reason": said.word}
    counts = {"prompt_eval_count": 9, "eval_count": 3}
    return with_error({**made, "message": ollama_message(said.text, said.calls), **counts}, said)


def ollama_streamed(said):
    for piece in halves(said.text):
        yield {"model": "m", "done": False, "message": ollama_message(piece, ())}
    for call in said.calls:
        yield {"model": "m", "done": False, "message": ollama_message("", (call,))}
    if said.error is not None:
        yield {"error": said.error}
    if said.word is not None:
        yield ollama_whole(Said(word=said.word))


WHOLE = dict(
    zip(
        APIS,
        (openai_whole, responses_whole, anthropic_whole, gemini_whole, ollama_whole),
        strict=True,
    )
)
STREAMED = dict(
    zip(
        APIS,
        (openai_streamed, responses_streamed, anthropic_streamed, gemini_streamed, ollama_streamed),
        strict=True,
    )
)


class Scripted:
    """A server that sends scripted bodies in order, and then empty ones.

    A body is a content type and a text, bytes, or a list of pieces, which are sent one after another.
    """

    def __init__(self, *bodies):
        self._server = ScriptedServer()
        self.url = self._server.url
        self.script(*bodies)

    def script(self, *bodies):
        """Send other bodies from now on, and forget the requests."""
        made = [(200, {"Content-Type": kind}, text) for kind, text in (*bodies, (JSON, "{}"))]
        self._server.answers[:] = made
        self._server.requests.clear()

    @property
    def requests(self):
        """The bodies that it received."""
        return self._server.bodies

    def model(self, api, *, streamed=True, **opts):
        """An adapter that asks this server."""
        path = "/v1" if api.startswith("openai") else ""
        return backend(f"{api}:m", base_url=self.url + path, api_key="k", stream=streamed, **opts)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()
