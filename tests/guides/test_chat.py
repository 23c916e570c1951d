"""The chat of docs/guide-chat.md, in a pseudo-terminal, with a script in place of the model."""

import os
import sys

import pytest

from treadle.sessions import SQLiteSessions
from treadle.testing import check_history

from .pasted import text_of
from .terminal import Terminal

ENTER, CTRL_C, CTRL_D = "\r", "\x03", "\x04"

DRIVER = """
import asyncio, sys, time

import chat
from treadle import Loop
from treadle.sessions import SQLiteSessions, compact_history
from treadle.testing import call, calls

async def endless():
    yield "Once upon "
    yield "a time"
    await asyncio.sleep(600)

def endless_sync():
    yield "Once upon "
    yield "a time"
    time.sleep(600)

def model(messages):
    asked, last = messages[-1]["content"], messages[-1]["role"]
    if last == "tool":
        return iter(["I am ", "done."])
    if asked.startswith("Mail"):
        return calls(call("send_mail", to="Ada", text="Hello"))
    if asked == "Story":
        return endless()
    if asked == "Story now":
        return endless_sync()
    if asked == "Fail":
        raise ValueError("no such model")
    seen = [message["content"] for message in messages if message["role"] == "user"]
    return f"You said {', '.join(seen)}."

stages = [compact_history(lambda _: "(notes)", max_tokens=1_000), ...]
loop = Loop(llm_send_fn=model, tools=[chat.send_mail], stages=stages)
chat.chat(loop, SQLiteSessions("chat.db").session("main"))
"""


@pytest.fixture
def chat(tmp_path):
    """Starts the chat; every start has the same folder."""
    (tmp_path / "chat.py").write_text(text_of("guide-chat.md"), encoding="utf-8")
    (tmp_path / "driver.py").write_text(DRIVER, encoding="utf-8")
    environment = {**os.environ, "TERM": "dumb", "PYTHONWARNINGS": "error"}
    return lambda: Terminal([sys.executable, "driver.py"], cwd=tmp_path, env=environment)


@pytest.fixture
def saved(tmp_path):
    """The conversation in the store; it is valid."""

    def read():
        messages = SQLiteSessions(tmp_path / "chat.db").session("main").messages()
        check_history(messages)
        return messages

    return read


def say(terminal, text):
    terminal.wait_for("> ")
    terminal.press(text + ENTER)


def test_a_conversation_goes_on_over_turns_and_over_starts_of_the_program(chat, saved):
    with chat() as terminal:
        say(terminal, "one")
        terminal.wait_for("You said one.")
        say(terminal, "two")
        terminal.wait_for("You said one, two.")
        terminal.wait_for("> ")
        terminal.press(CTRL_D)
        assert terminal.wait() == 0
    with chat() as terminal:
        say(terminal, "three")
        terminal.wait_for("You said one, two, three.")
        say(terminal, "/new")
        say(terminal, "four")
        terminal.wait_for("You said four.")
        terminal.wait_for("> ")
    assert [message["content"] for message in saved()] == ["four", "You said four."]


def test_the_model_sees_a_summary_of_older_turns_and_all_are_kept(chat, saved):
    texts = [letter * 1_000 for letter in "abcd"]
    with chat() as terminal:
        for text in texts:
            say(terminal, text)
        _, _, answer = terminal.wait_for(f"{texts[-1]}.").rpartition("You said ")
        assert answer.startswith("[Previous conversation summary]\n(notes)")
        assert texts[0] not in answer
        terminal.wait_for("> ")
    assert [message["content"] for message in saved() if message["role"] == "user"] == texts


@pytest.mark.parametrize("story", ["Story", "Story now"], ids=["async", "sync"])
def test_ctrl_c_interrupts_the_answer_and_keeps_its_text(chat, saved, story):
    with chat() as terminal:
        say(terminal, story)
        terminal.wait_for("Once upon a time")
        terminal.press(CTRL_C)
        terminal.wait_for("[interrupted]")
        say(terminal, "Thanks")
        terminal.wait_for(f"You said {story}, Thanks.")
        terminal.wait_for("> ")
    assert [message["content"] for message in saved()] == [
        *(story, "Once upon a time"),
        *("Thanks", f"You said {story}, Thanks."),
    ]


@pytest.mark.parametrize(
    ("keys", "told"),
    [("y" + ENTER, "sent to Ada"), ("n" + ENTER, "the user said no"), (CTRL_D, "the user said no")],
)
def test_a_call_runs_only_if_the_user_approves_it(chat, saved, keys, told):
    with chat() as terminal:
        say(terminal, "Mail Ada")
        assert '"to": "Ada"' in terminal.wait_for("[y/n] ")
        terminal.press(keys)
        assert ("[send_mail" in terminal.wait_for("I am done.")) is (told == "sent to Ada")
        terminal.wait_for("> ")
    assert told in saved()[2]["content"]


def test_ctrl_c_at_an_approval_keeps_the_conversation(chat, saved):
    with chat() as terminal:
        say(terminal, "Mail Ada")
        terminal.wait_for("[y/n] ")
        terminal.press_until(CTRL_C, "[interrupted]")
        terminal.wait_for("> ")
    assert [message["role"] for message in saved()] == ["user", "assistant", "tool"]


def test_ctrl_c_at_the_prompt_discards_the_line(chat, saved):
    with chat() as terminal:
        terminal.wait_for("> ")
        terminal.press("nonsense")
        terminal.wait_for("nonsense")
        terminal.press_until(CTRL_C, "> ")
        terminal.press("one" + ENTER)
        terminal.wait_for("You said one.")


def test_an_error_is_shown_and_the_chat_goes_on(chat, saved):
    with chat() as terminal:
        say(terminal, "Fail")
        terminal.wait_for("no such model")
        say(terminal, "one")
        terminal.wait_for("You said Fail")
        terminal.wait_for("one.")
