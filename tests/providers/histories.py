"""Histories for property tests of adapters: every kind of message, part and key that a history may have."""

import json

from hypothesis import strategies as st

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
PAGES = "JVBERi0xLjQKJSVFT0YK"

texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20
).filter(lambda text: text.strip() == text)
names = st.from_regex(r"[a-z][a-z0-9_]{0,10}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(names, json_values, max_size=3).map(json.dumps)

text_parts = texts.map(lambda text: {"type": "text", "text": text})
images = st.sampled_from(
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/picture.png"}},
    ]
)
sounds = st.just({"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}})
files = st.just(
    {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAGES}"},
    }
)
unknown_keys = st.dictionaries(st.sampled_from(["x_note", "x_more"]), json_values, max_size=2)
"""Keys that no provider knows; a history keeps them."""
cache_hints = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}])


NO_REASONING = st.just({})


def merged(*strategies):
    """Dicts with the keys of all strategies."""
    return st.tuples(*strategies).map(
        lambda found: {key: value for one in found for key, value in one.items()}
    )


parts = merged(st.one_of(text_parts, images, sounds, files), cache_hints)
contents = texts | st.lists(parts, min_size=1, max_size=3)


@st.composite
def exchanges(draw, reasoning=NO_REASONING):
    """An assistant message with calls, and one result for each of them.

    Args:
        draw: Hypothesis's.
        reasoning: keys of the assistant message that hold its reasoning, in the form of one provider.
    """
    count = draw(st.integers(1, 3))
    calls, results = [], []
    for _ in range(count):
        call_id = f"call_{draw(st.integers(0, 10**9))}_{len(calls)}_{draw(names)}"
        function = {"name": draw(names), "arguments": draw(arguments)}
        calls.append({"id": call_id, "type": "function", "function": function})
        content = draw(
            texts
            | texts.map(lambda text: f"Error: {text}")
            | st.lists(parts, min_size=1, max_size=2)
        )
        results.append(
            {"role": "tool", "tool_call_id": call_id, "content": content, **draw(unknown_keys)}
        )
    said = {"role": "assistant", "content": draw(st.none() | texts), "tool_calls": calls}
    return [{**said, **draw(reasoning), **draw(unknown_keys)}, *results]


@st.composite
def histories(draw, reasoning=NO_REASONING):
    """Valid histories: a system message, questions with parts, exchanges of calls and results, and answers.

    Args:
        draw: Hypothesis's.
        reasoning: see `exchanges`.
    """
    system = draw(st.none() | texts)
    history = [] if system is None else [{"role": "system", "content": system}]
    for _ in range(draw(st.integers(1, 3))):
        history.append({"role": "user", "content": draw(contents), **draw(unknown_keys)})
        for _ in range(draw(st.integers(0, 2))):
            history += draw(exchanges(reasoning))
        if draw(st.booleans()):
            answer = {
                "role": "assistant",
                "content": draw(texts),
                **draw(reasoning),
                **draw(unknown_keys),
            }
            history.append(answer)
        elif history[-1]["role"] == "tool":
            history.append({"role": "assistant", "content": "Done."})
        else:
            history.append({"role": "assistant", "content": "Yes."})
    history.append({"role": "user", "content": draw(contents)})
    return history
