"""Parity with Planck: aborting, and user messages that arrive while tools run."""

import threading

import pytest

from treadle import Limits, Ok, RunCancelled, RunHandle, presets, tool
from treadle.events import ToolFinished, UserMessageAdded
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import answers
from .places import each_look, look

# Aborting


def test_an_abort_while_the_answer_streams_leaves_a_valid_history(run):
    """The text so far is kept, as an answer that ends early; earlier messages are kept."""
    handle, is_over = RunHandle(), threading.Event()

    def stream(messages):
        yield "Well, "
        handle.cancel()
        assert is_over.wait(timeout=5)
        yield "late"

    llm = ScriptedLLM(calls(call("look", "c1", place="here")), stream)
    result = run("?", llm, tools=[look], handle=handle)
    is_over.set()
    assert result.reason == RunCancelled()
    assert [message["role"] for message in result.messages[:3]] == ["user", "assistant", "tool"]
    assert result.messages[3:] == [{"role": "assistant", "content": "Well, "}]
    assert handle.messages == result.messages
    assert handle.result is result


def test_an_abort_while_tools_run_answers_every_call(run):
    """Finished calls keep their results, running and waiting ones are answered as cancelled."""
    handle, is_over = RunHandle(), threading.Event()

    @tool(parallel_safe=False)
    def stop() -> str:
        handle.cancel()
        assert is_over.wait(timeout=5)
        return "late"

    asked = calls(call("look", place="here"), call("stop"), call("look", place="there"))
    options = {**presets.planck(), "tools": [look, stop], "handle": handle}
    result = run("?", ScriptedLLM(asked), **options)
    is_over.set()
    assert result.reason == RunCancelled()
    first, *others = answers(result)
    assert first == "here is empty"
    assert [other[:10] for other in others] == ["Cancelled:"] * 2
    assert "late" not in str(result.messages)
    assert result.tool_calls_count == 2


def test_an_abort_after_the_tools_completed_keeps_their_results(run):
    """Their results are in the history, and the model is not called again."""
    handle = RunHandle()

    def abort(event):
        if isinstance(event, ToolFinished) and event.call.id == "c2":
            handle.cancel()

    asked = calls(call("look", "c1", place="here"), call("look", "c2", place="there"))
    options = {
        **presets.planck(),
        "limits": Limits(max_parallel_calls=1),
        "handle": handle,
        "on_event": abort,
    }
    result = run("?", ScriptedLLM(asked), tools=[look], **options)
    assert result.reason == RunCancelled()
    assert answers(result) == ["here is empty", "there is empty"]


# A user message that arrives while tools run


def spoken(result):
    return [message["content"] for message in result.messages if message["role"] == "user"]


def test_a_user_message_queued_while_tools_run_starts_the_next_turn_after_them(run):
    """It is added after the answers of the calls, before the next request, and starts a turn.

    In Planck the turn ends with the answer; here the run continues with the user message, in one history.
    """
    handle, events = RunHandle(), []

    @tool
    def ask_user() -> str:
        assert handle.steer("And there?")
        return "asked"

    asked = calls(call("ask_user"), call("look", place="here"))
    llm = ScriptedLLM(asked, *each_look("there"), "Both are empty.")
    options = {**presets.planck(), "tools": [ask_user, look], "handle": handle}
    result = run("?", llm, **options, on_event=events.append)
    assert isinstance(result, Ok)
    assert llm.sent[1].messages == result.messages[:5]
    assert [m["role"] for m in result.messages[1:5]] == ["assistant", "tool", "tool", "user"]
    assert spoken(result) == ["?", "And there?"]
    (steered,) = [event for event in events if isinstance(event, UserMessageAdded)]
    assert steered == UserMessageAdded(iteration=2, messages=(result.messages[4],))
    assert not handle.steer("Too late.")


def test_a_queued_user_message_resets_the_counts(run):
    """Counts are those of a turn: a call made twice before it may be made twice after it."""
    handle = RunHandle()

    def steer(messages):
        handle.steer("Look again.")
        return each_look("here")[0]

    llm = ScriptedLLM(*each_look("here"), steer, *each_look("here", "here"), "Empty.")
    result = run("?", llm, **presets.planck(), tools=[look], handle=handle)
    assert answers(result) == ["here is empty"] * 4


def test_a_user_message_queued_before_an_abort_of_the_tools_comes_after_them(run):
    """The tools are answered as cancelled; then comes the user message, and the model continues."""
    handle, is_over = RunHandle(), threading.Event()

    @tool
    def interrupt() -> str:
        handle.steer("Leave it.")
        handle.cancel_all()
        assert is_over.wait(timeout=5)
        return "late"

    llm = ScriptedLLM(calls(call("interrupt")), "Left.")
    result = run("?", llm, **presets.planck(), tools=[interrupt], handle=handle)
    is_over.set()
    assert answers(result) == ["Cancelled: the call was stopped before it was done."]
    assert spoken(result) == ["?", "Leave it."]
    assert llm.sent[1].messages == result.messages[:-1]


@pytest.mark.parametrize("steered", [False, True])
def test_a_user_message_queued_before_an_abort_of_the_run_starts_the_next_one(run, steered):
    """The run has ended; the message is not lost, whether the handle or the caller kept it."""
    handle, is_over, queue = RunHandle(), threading.Event(), []

    @tool
    def speak() -> str:
        if steered:
            handle.steer("And there?")
        else:
            queue.append({"role": "user", "content": "And there?"})
        handle.cancel()
        assert is_over.wait(timeout=5)
        return "late"

    first = run("?", ScriptedLLM(calls(call("speak"))), tools=[speak], handle=handle)
    is_over.set()
    assert first.reason == RunCancelled()
    messages = [*first.messages, *queue]
    check_history(messages)
    assert spoken(first) == (["?", "And there?"] if steered else ["?"])
    llm = ScriptedLLM(*each_look("there"), "Not there.")
    second = run(messages, llm, tools=[look])
    assert isinstance(second, Ok)
    assert llm.sent[0].messages == messages
    assert second.run.repairs == ()
