"""Tools that return images, audio and files: in the history, on the wire, in evidence, in a pause."""

import dataclasses
import json

import pytest

from treadle import (
    Err,
    Limits,
    Loop,
    ModelRequested,
    Ok,
    Recipe,
    RecipeStep,
    ToolFinished,
    approve,
    event_from_json,
    stage,
    tool,
)
from treadle.messages.parts import placeholder
from treadle.stages import dispatch_tools
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.tools import MAX_BYTES


def image(data="iVBORw0KGgo="):
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def text(content):
    return {"type": "text", "text": content}


SHOWN = placeholder(image())


@tool
def shoot(n: int = 0):
    """Take a picture."""
    return ["Here:", image()]


def shots(count, answer="Done."):
    return [*(calls(call("shoot", f"c{n}", n=n)) for n in range(count)), answer]


def content_of(messages, call_id="c0"):
    return next(one["content"] for one in messages if one.get("tool_call_id") == call_id)


def test_the_history_has_the_parts_and_a_model_gets_text_and_a_user_message(way):
    model = ScriptedLLM(*shots(2))
    result = way.run(Loop(tools=[shoot]), model)
    assert content_of(result.messages) == [text("Here:"), image()]
    media = [text("Content of the tool results:"), text(SHOWN), image()]
    asked, got, shown = model.sent[1].messages[-3:]
    assert (asked["role"], got["content"]) == ("assistant", f"Here:\n{SHOWN}")
    assert shown == {"role": "user", "content": media}
    # The request that follows starts with the same messages, as caches of prompts need it.
    assert model.sent[2].messages[:4] == model.sent[1].messages
    assert [one["role"] for one in model.sent[2].messages[4:]] == ["assistant", "tool", "user"]


class Multimodal(ScriptedLLM):
    accepts_tool_result_parts = True


def test_a_model_that_takes_parts_in_tool_messages_gets_them(way):
    model = Multimodal(*shots(1))
    way.run(Loop(tools=[shoot]), model)
    assert model.sent[1].messages[-1]["content"] == [text("Here:"), image()]


def test_a_history_of_the_caller_is_sent_in_the_same_way(way):
    earlier = way.run(Loop(tools=[shoot]), ScriptedLLM(*shots(1))).messages
    model = ScriptedLLM("Yes.")
    way.run(Loop(tools=[shoot]), model, [*earlier, {"role": "user", "content": "Sure?"}])
    check_history(model.sent[0].messages)
    roles = [one["role"] for one in model.sent[0].messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant", "user"]


def test_a_view_that_a_stage_made_is_sent_in_the_same_way(way):
    @stage
    def last_only(ctx):
        return ctx.with_request(messages=ctx.messages[-2:]) if ctx.iteration == 2 else ctx

    model = ScriptedLLM(*shots(1))
    way.run(
        Loop(tools=[shoot], stages=Loop().pipeline.insert_before("ask_model", last_only)), model
    )
    assert [one["role"] for one in model.sent[1].messages] == ["assistant", "tool", "user"]


def test_the_budget_that_the_model_is_shown_is_joined_with_the_media(way):
    model = ScriptedLLM(*shots(1))
    way.run(Loop(tools=[shoot], limits=Limits(show_budget=True), max_iterations=5), model)
    last = model.sent[1].messages[-1]
    assert (last["role"], last["content"][2]) == ("user", image())
    assert last["content"][3]["text"].startswith("Left for this task")


def test_a_result_has_a_text_with_a_placeholder_and_the_parts(way):
    seen = []
    way.run(Loop(tools=[shoot], on_event=seen.append), ScriptedLLM(*shots(1)))
    (result,) = (event.result for event in seen if isinstance(event, ToolFinished))
    assert result.content == f"Here:\n{SHOWN}"
    assert list(result.parts) == [text("Here:"), image()]
    for event in seen:
        if isinstance(event, ToolFinished):
            assert event_from_json(json.loads(json.dumps(event.to_json()))) == event
    sent = [event.to_json()["messages"] for event in seen if isinstance(event, ModelRequested)]
    assert content_of(sent[1]) == [text("Here:"), image()]
    with pytest.raises(TypeError, match="read-only"):
        result.parts[0]["text"] = "x"


def test_ordinary_json_and_parts_that_are_text_alone_are_text(way):
    @tool
    def read(n: int = 0):
        """Read."""
        return [{"type": "text", "text": "a", "by": "Ann"}, [text("a"), "b"]][n]

    model = ScriptedLLM(calls(call("read", "c0", n=0), call("read", "c1", n=1)), "Done.")
    messages = way.run(Loop(tools=[read]), model).messages
    assert content_of(messages) == '{"type":"text","text":"a","by":"Ann"}'
    assert content_of(messages, "c1") == "a\nb"


def test_long_texts_among_the_parts_are_cut_at_the_limit_of_one_result():
    @tool
    def shoot_long():
        """Take a picture."""
        return ["x" * MAX_BYTES, image(), "y" * MAX_BYTES, "z"]

    result = Loop.run_sync(
        "Hi", ScriptedLLM(calls(call("shoot_long", "c0")), "."), tools=[shoot_long]
    )
    parts = content_of(result.messages)
    assert parts[1] == image()
    assert sum(len(part.get("text", "")) for part in parts) < MAX_BYTES + 200
    assert "cut: " in parts[2]["text"]


def test_ok_err_and_a_resolver_may_hold_parts(way):
    def resolve(one):
        return [Ok(image()), Err([image(), "too dark"])][one.input["n"]]

    schema = {"name": "look", "input_schema": {"type": "object"}}
    model = ScriptedLLM(calls(call("look", "c0", n=0), call("look", "c1", n=1)), "Done.")
    seen = []
    loop = Loop(tools=[schema], resolve_tool=resolve, on_event=seen.append)
    messages = way.run(loop, model).messages
    assert content_of(messages) == [image()]
    assert content_of(messages, "c1") == [text("Error:"), image(), text("too dark")]
    errors = {one.call.id: one.result.is_error for one in seen if isinstance(one, ToolFinished)}
    assert errors == {"c0": False, "c1": True}


def test_different_images_are_new_evidence_and_equal_ones_are_not(way):
    def asked(*images):
        taken = iter(images)

        @tool
        def watch():
            """Take a picture."""
            return image(next(taken))

        script = [calls(call("watch", f"c{n}")) for n in range(3)]
        messages = way.run(Loop(tools=[watch]), ScriptedLLM(*script, "Done.")).messages
        return [one["content"] for one in messages if one["role"] == "tool"]

    assert [is_image(one) for one in asked("aaaa", "bbbb", "cccc")] == [True, True, True]
    same = asked("aaaa", "aaaa", "aaaa")
    assert [is_image(one) for one in same[:2]] == [True, True]
    assert placeholder(image("aaaa")) in same[2]


def is_image(content):
    return any(part["type"] == "image_url" for part in content if isinstance(part, dict))


def test_a_note_on_a_repeated_call_is_another_part(way):
    @tool(dedupe="off")
    def look():
        """Look."""
        return image()

    script = [calls(call("look", f"c{n}")) for n in range(3)]
    messages = way.run(Loop(tools=[look]), ScriptedLLM(*script, ".")).messages
    picture, note = content_of(messages, "c2")
    assert (picture, note["type"]) == (image(), "text")
    assert "call number 3" in note["text"]


def test_a_paused_run_keeps_the_parts(way):
    @tool(requires_approval=True)
    def wipe():
        """Wipe."""
        return "wiped"

    loop = Loop(tools=[shoot, wipe])
    script = calls(call("shoot", "c0"), call("wipe", "w"))
    paused = way.run(loop, ScriptedLLM(script))
    state = json.loads(json.dumps(paused.state))
    model = ScriptedLLM("Done.")
    result = way.resume(loop, state, {"w": approve}, model)
    assert content_of(result.messages) == [text("Here:"), image()]
    assert [one["role"] for one in model.sent[0].messages][-3:] == ["tool", "tool", "user"]


def test_a_recipe_passes_the_parts_of_its_steps_on(way):
    class Resolver:
        def resolve(self, one):
            raise AssertionError(one.name)

        def dispatch_recipe(self, name):
            return lambda _: Recipe(serial=(RecipeStep("shoot"),)) if name == "album" else None

    tools = [shoot, {"name": "album", "input_schema": {"type": "object"}}]
    model = ScriptedLLM(calls(call("album", "c0")), "Done.")
    content = content_of(way.run(Loop(tools=tools, resolve_tool=Resolver()), model).messages)
    assert SHOWN in content[0]["text"]
    assert content[1:] == [image()]


class TestStages:
    """A stage that changes a result."""

    def run(self, stages):
        return Loop(tools=[shoot], stages=stages).run_sync("Hi", ScriptedLLM(*shots(1)))

    def dispatching(self, edit):
        """The default stages with a dispatcher that edits the results."""

        def dispatch(ctx):
            ctx = yield from dispatch_tools.fn(ctx)
            return ctx.replace(
                tool_results={key: edit(one) for key, one in ctx.tool_results.items()}
            )

        return Loop().pipeline.replace("dispatch_tools", dispatch)

    def test_a_text_that_a_stage_put_in_place_hides_the_parts(self):
        def hide(ctx):
            return ctx.edit_result("c0", "[hidden]") if ctx.tool_results else ctx

        edited = self.dispatching(lambda one: dataclasses.replace(one, content="[hidden]"))
        for stages in (Loop().pipeline.insert_after("dispatch_tools", hide), edited):
            assert content_of(self.run(stages).messages) == "[hidden]"

    def test_parts_that_are_none_are_an_error(self):
        result = self.run(
            self.dispatching(lambda one: dataclasses.replace(one, parts=[{"type": "x"}]))
        )
        assert "tool_results['c0'].parts: expected content parts" in str(result.reason)
