"""The scripted model: it answers by its script, records what it was sent, and fails where the run does not."""

import json
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from treadle import Err, Loop, tool
from treadle.testing import ScriptedLLM, ScriptError, SentRequest, call, calls

USER = [{"role": "user", "content": "Hi"}]


def test_it_answers_step_by_step():
    model = ScriptedLLM("a", {"role": "assistant", "content": "b"})
    assert model(USER) == "a"
    assert (model.left, model(USER), model.left) == (1, {"role": "assistant", "content": "b"}, 0)


def test_it_records_copies_of_what_it_was_sent():
    model, messages = ScriptedLLM("a"), [{"role": "user", "content": [{"type": "text"}]}]
    model(messages, temperature=0)
    messages[0]["content"].clear()
    messages.append("x")
    assert model.sent == [
        SentRequest([{"role": "user", "content": [{"type": "text"}]}], {"temperature": 0})
    ]


def test_what_it_answers_is_a_copy_of_its_script():
    step = calls(call("f", "a"))
    model = ScriptedLLM(step, step)
    model(USER)["tool_calls"].clear()
    assert len(model(USER)["tool_calls"]) == 1


def test_an_exception_is_raised():
    with pytest.raises(KeyError, match="x"):
        ScriptedLLM(KeyError("x"))(USER)


def test_a_function_is_handed_the_messages():
    assert ScriptedLLM(lambda messages: messages[0]["content"] + "!")(USER) == "Hi!"


@pytest.mark.parametrize("step", [["a", "b"], ("a", "b")])
def test_a_list_is_streamed(step):
    answer = ScriptedLLM(step)(USER)
    assert isinstance(answer, Iterator)
    assert list(answer) == ["a", "b"]


def test_it_can_be_async():
    async def maker(messages):
        await anyio.sleep(0)
        return "made"

    async def main():
        model = ScriptedLLM("a", maker, ["b", "c"], KeyError("x"), is_async=True)
        assert await model(USER) == "a"
        assert await model(USER) == "made"
        stream = await model(USER)
        assert isinstance(stream, AsyncIterator)
        assert [piece async for piece in stream] == ["b", "c"]
        with pytest.raises(KeyError):
            await model(USER)

    anyio.run(main)


def test_one_step_too_many_is_an_error_that_says_after_what():
    model = ScriptedLLM("a")
    model(USER)
    with pytest.raises(
        ScriptError, match="the script has 1 steps, and the run asked for one more"
    ) as e:
        model(USER)
    assert "'Hi'" in str(e.value)


def test_one_step_too_many_within_a_run_fails_at_the_end_of_the_test():
    """The run makes an `Err` of it, which a test might not look at."""

    @tool
    def double(n: int):
        return n

    with pytest.raises(ScriptError, match="the script has 1 steps, and the run asked 2 times"):  # noqa: SIM117
        with ScriptedLLM(calls(call("double", n=1))) as model:
            assert isinstance(Loop.run_sync(USER, model, tools=[double]), Err)


def test_steps_left_over_are_an_error_that_names_the_next():
    with pytest.raises(ScriptError, match="after 1 of 3 steps; next would have been 'b'"):  # noqa: SIM117
        with ScriptedLLM("a", "b", "c") as model:
            model(USER)


def test_a_script_that_was_followed_is_fine():
    with ScriptedLLM("a") as model:
        model(USER)
    model.check()


def test_a_failing_test_is_not_hidden_by_the_script():
    with pytest.raises(KeyError), ScriptedLLM("a"):
        raise KeyError


def test_calls_are_written_as_a_model_writes_them():
    made = call("add", a=1, b=[2])
    assert (made["type"], made["function"]["name"]) == ("function", "add")
    assert json.loads(made["function"]["arguments"]) == {"a": 1, "b": [2]}
    assert made["id"] != call("add")["id"]
    assert call("add", "mine")["id"] == "mine"
    assert call("add", name="x")["function"]["arguments"] == '{"name": "x"}'
    assert calls(made, text="Let me see") == {
        "role": "assistant",
        "content": "Let me see",
        "tool_calls": [made],
    }
