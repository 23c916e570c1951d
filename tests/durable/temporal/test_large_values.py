"""Values that are larger than the server takes: at once an error that names them, and none with a store."""

import json
from typing import Any

import pytest

from treadle import Limits, Loop, stage, tool
from treadle.durable.temporal import SQLiteBlobStore, ValueTooLargeError
from treadle.results import LLMError
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls

from . import running


class Ran(list):
    """What tools were called with."""

    def tools(self):
        @tool
        def pay(n: int = 0, text: str = "", size: int = 0, fails: bool = False) -> Any:
            """Pay, and return the picture of a receipt."""
            self.append(len(text))
            if fails:
                raise ValueError("x" * size)
            url = "data:image/png;base64," + "A" * size
            return [{"type": "image_url", "image_url": {"url": url}}] if size else "Paid."

        return [pay]


@pytest.fixture(params=["store", "no store"])
def store(request, tmp_path):
    return SQLiteBlobStore(tmp_path / "store.db") if request.param == "store" else None


def played(server, store, *responses, ran=None, **options):
    """The result of a run, what its tool was called with, and the model."""
    ran, model = Ran() if ran is None else ran, ScriptedLLM(*responses)
    loop = Loop(llm_send_fn=model, tools=ran.tools(), name="large", **options)

    async def work(client):
        async with running.serving(client, loop, store=store) as queue:
            run = await running.started(client, loop, queue, store=store)
            return await run.result()

    return running.run(server, work), ran, model


def ended(server, store, *responses, **options):
    """The result of a run, None if it is too large without a store; and what its tool was called with."""
    ran = Ran()
    if store is not None:
        return played(server, store, *responses, ran=ran, **options)[:2]
    with pytest.raises(ValueTooLargeError, match=r"the (state|result) of the run: [\d,]+ bytes"):
        played(server, store, *responses, ran=ran, **options)
    return None, ran


@pytest.mark.parametrize("fails", [False, True], ids=["result", "exception"])
def test_the_outcome_of_a_call_that_must_not_run_twice(temporal_server, store, fails):
    asked = calls(call("pay", "c1", size=2_500_000, fails=fails))
    result, ran, _ = played(temporal_server, store, asked, "Done.")
    assert len(ran) == 1
    content = result.messages[-2]["content"]
    if store is None:
        assert "the outcome of call c1 of 'pay' is known, and was not kept: " in content
        assert "Unknown" not in content
        assert "store" in content
    else:
        assert (
            content[:200].count("x") > 100
            if fails
            else len(content[0]["image_url"]["url"]) > 2_500_000
        )
    assert result.output == "Done."


def test_an_answer(temporal_server, store):
    result, _, model = played(temporal_server, store, "x" * 3_000_000)
    assert len(model.sent) == 1
    if store is None:
        assert isinstance(result.reason, LLMError)
        assert "the answer of iteration 1 is known, and was not kept: 3,0" in str(result.reason)
    else:
        assert len(result.output) == 3_000_000


def test_arguments_are_sent_once_and_in_the_store(temporal_server, store):
    size = 1_500_000 if store is None else 3_000_000
    asked = calls(call("pay", "c1", text="x" * size))
    result, ran, _ = played(temporal_server, store, asked, "Done.")
    assert (result.output, ran) == ("Done.", [size])


def test_calls_that_are_large_together_are_sent_one_after_another(temporal_server, store):
    """The server takes four megabytes at once. Without a store, the state of the run is too large in the end."""

    @stage
    def enlarge(ctx):
        """Give each call a text of 300 kB."""
        for n, one in enumerate(ctx.tool_calls):
            ctx = ctx.edit_call(one, {"n": n, "text": "x" * 300_000})
        return ctx

    asked = calls(*(call("pay", f"c{n}", n=n) for n in range(20)))
    stages = [*default_stages()[:2], enlarge, *default_stages()[2:]]
    options = {"stages": stages, "limits": Limits(max_parallel_calls=20)}
    result, ran = ended(temporal_server, store, asked, "Done.", **options)
    assert ran == [300_000] * 20
    assert result is None or result.output == "Done."


def test_results_that_are_large_together(temporal_server, store):
    asked = calls(*(call("pay", f"c{n}", n=n, size=300_000) for n in range(20)))
    result, ran = ended(
        temporal_server, store, asked, "Done.", limits=Limits(max_parallel_calls=20)
    )
    assert len(ran) == 20
    assert result is None or result.output == "Done."


def test_messages_without_a_store_are_refused_at_once(temporal_server):
    async def work(client):
        await running.started(client, "large", "nobody", "é" * 400_000)

    with pytest.raises(
        ValueTooLargeError, match=r"messages: 2,400,\d+ bytes as JSON; Temporal takes"
    ):
        running.run(temporal_server, work)


def test_a_subagent_whose_task_is_too_large(temporal_server, store):
    inner = Loop(llm_send_fn=ScriptedLLM("Inner."), name="inner")
    asked = calls(call("sub", "c1", task="x" * 1_100_000))
    model = ScriptedLLM(asked, "Done.")
    loop = Loop(llm_send_fn=model, tools=[inner.as_tool("sub", "Do it.")], name="outer")

    async def work(client):
        async with running.serving(client, loop, store=store) as queue:
            run = await running.started(client, loop, queue, store=store)
            return await run.result()

    if store is None:
        with pytest.raises(ValueTooLargeError, match="the result of the run: "):
            running.run(temporal_server, work)
    else:
        assert running.run(temporal_server, work).output == "Done."


def test_the_text_is_that_of_the_payload():
    from treadle.durable.temporal.payloads import ENGINE_BYTES, checked_size

    data = {"text": "é" * 10, "n": [1, 2]}
    assert checked_size(data, "it") == len(json.dumps(data, separators=(",", ":")).encode())
    with pytest.raises(ValueTooLargeError, match="it: 2,000,001 bytes"):
        checked_size("x" * (ENGINE_BYTES - 1), "it")
