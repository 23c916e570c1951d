"""A real model, the local one, summarises a conversation and continues from its summary."""

import pytest

from treadle import Loop, default_stages
from treadle.events import HistoryCompacted
from treadle.messages import estimate_tokens
from treadle.providers.local import LocalModel
from treadle.sessions import compact_history

from .compacting import blocks, text

CONVERSATION = [
    "Hello, I am Ada. My green desk lamp arrived broken yesterday. The shade of the lamp is cracked, and the "
    "switch does not work any more.",
    "Hello Ada! I am sorry that the green desk lamp arrived broken. Would you like a refund, or shall we send "
    "you another lamp?",
    "Please send me another green desk lamp. I live in Lisbon now, no longer in Paris, so please send the lamp "
    "to my new address in Lisbon.",
    "Of course. We will send another green desk lamp to your address in Lisbon. It will arrive on Friday. There "
    "is nothing to pay.",
    "Thank you. Friday is good, since my sister visits me on Saturday and the lamp is a present for her. Do I "
    "have to send the broken lamp back?",
    "No, you may keep the broken lamp or recycle it. The new green desk lamp for your sister is on its way to "
    "Lisbon.",
    "What is the capital of France?",
]


@pytest.mark.local
def test_the_local_model_summarises_a_conversation_and_goes_on():
    given = [
        {"role": ("user", "assistant")[place % 2], "content": said}
        for place, said in enumerate(CONVERSATION)
    ]
    requests, events = [], []
    # Threads wait for each other actively: on shared cores, one is steadier than two.
    with LocalModel(threads=1) as model:

        def ask(messages):
            requests.append(messages)
            return model(messages, max_tokens=40)

        def summarize(messages):
            return model(messages, max_tokens=150)

        result = Loop.run_sync(
            given,
            ask,
            stages=[compact_history(summarize, max_tokens=180, keep_recent=2), *default_stages()],
            on_event=events.append,
        )
    [request], [compacted] = requests, [e for e in events if isinstance(e, HistoryCompacted)]
    assert "Paris" in result.unwrap().text
    assert compacted.tokens_after < compacted.tokens_before
    assert estimate_tokens(request) < 0.75 * estimate_tokens(given)
    assert request[-2:] == given[-2:]
    assert "lamp" in text(*blocks(request))
    # The summary was a request of its own: its tokens are among those of the run.
    assert result.usage.output_tokens > 40
    assert result.messages[:-1] == given
