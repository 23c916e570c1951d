"""The context: an immutable record, copied with changes; and the request that it makes."""

import dataclasses
import re

import pytest

from treadle.context import Context, Decision, Request, RunServices
from treadle.errors import OptionError, ToolDefinitionError
from treadle.limits import Budget, Limits
from treadle.messages import History, InvalidMessagesError, Response, ToolCall
from treadle.model import ModelClient
from treadle.results import MaxIterationsReached, PendingCall, StoppedByStage
from treadle.testing import ScriptedLLM
from treadle.tools import Resolver, Tool, toolset

HI = {"role": "user", "content": "Hi"}


def with_services(context, **services):
    return context.evolve(run=dataclasses.replace(context.run, **services))


def named(*names):
    return [Tool(name, fn=lambda: None) for name in names]


@pytest.fixture
def context():
    run = RunServices(
        budget=Budget(Limits(max_iterations=4)), deps="deps", instructions="Be brief."
    )
    return Context(History([HI]), toolset(named("add", "look")), Response("Hi"), run)


def test_an_iteration_begins_without_what_the_last_one_made(context):
    kept = set("messages tools run decision error output guidance memo waiting".split())  # noqa: SIM905
    names = {spec.name for spec in dataclasses.fields(Context)}
    last = context.evolve(**{name: name.upper() for name in names - {"run"}})
    begun, fresh = last.begin(7, ["ask_model"], {"options": {}}), Context(History())
    assert {name for name in names if getattr(begun, name) is getattr(last, name)} == kept
    assert (begun.iteration, begun.trace) == (7, ["ask_model"])
    assert begun.request_changes == {"options": {}}
    for name in names - kept - {"iteration", "trace", "request_changes"}:
        assert getattr(begun, name) == getattr(fresh, name)


class TestReplace:
    """A change is a copy; the context itself never changes."""

    @pytest.mark.parametrize("method", ["replace", "evolve"])
    def test_it_changes_a_copy_and_nothing_else(self, context, method):
        changed = getattr(context, method)(guidance="g", output="x")
        assert (changed.guidance, changed.output) == ("g", "x")
        assert (context.guidance, context.output) == (None, None)
        for spec in dataclasses.fields(Context):
            if spec.name not in {"guidance", "output"}:
                assert getattr(changed, spec.name) is getattr(context, spec.name)

    def test_it_is_frozen(self, context):
        with pytest.raises(dataclasses.FrozenInstanceError):
            context.iteration = 5
        with pytest.raises(dataclasses.FrozenInstanceError):
            context.evolve(iteration=2).iteration = 5

    def test_copies_share_the_run_and_other_contexts_do_not(self, context):
        context.run.budget.reserve("t", 2)
        assert context.replace(guidance="x").run is context.run
        assert Context(History()).run.budget.tool_calls == 0

    def test_remember_adds_to_a_copy_of_the_memo(self, context):
        first = context.remember("a", 1)
        second = first.remember("b", 2)
        assert (context.memo, first.memo, second.memo) == ({}, {"a": 1}, {"a": 1, "b": 2})


class TestDecisions:
    """A decision ends the run; without one it continues."""

    def test_a_decision_sets_the_status(self, context):
        assert (context.decision, context.status) == (None, "continue")
        done = context.done("out")
        assert (done.decision, done.status, done.output) == (Decision.DONE, "ok", "out")
        reason = MaxIterationsReached(4)
        stopped = context.stop(reason)
        assert (stopped.decision, stopped.status, stopped.error) == (Decision.STOP, "error", reason)

    def test_a_text_stops_with_the_name_of_the_stage(self, context):
        stopped = context.evolve(trace=["ask_model", "mine"]).stop("enough")
        assert stopped.error == StoppedByStage("mine", "enough")

    def test_a_pause_is_neither_an_end_nor_an_error(self, context):
        waiting = (PendingCall("c1", "send", {}, "Send?"),)
        paused = context.pause(waiting)
        assert (paused.decision, paused.status, paused.waiting) == (
            Decision.PAUSE,
            "paused",
            waiting,
        )
        assert (paused.error, context.waiting) == (None, ())


def test_the_budget_of_a_call_is_released_once(context):
    run, call = context.run, ToolCall("a", "note", "{}")
    run = dataclasses.replace(run, budget=Budget(Limits(max_tool_calls=3)))
    run.reserve(call)
    run.reserve(ToolCall("b", "note", "{}"))
    for _ in range(2):
        run.release(call)
    assert run.budget.calls_left() == 2


def test_the_context_has_the_attributes_of_the_run(context):
    assert (context.max_iterations, context.limits) == (4, context.run.budget.limits)
    assert (context.deps, context.state) == ("deps", context.run.state)
    assert context.instructions == "Be brief."


def test_instructions_may_depend_on_the_context(context):
    context = with_services(context, instructions=lambda ctx: f"Iteration {ctx.iteration}")
    assert context.evolve(iteration=3).instructions == "Iteration 3"
    assert context.request.instructions == "Iteration 1"


class TestRequest:
    """The request is a view of the context; a stage changes it without changing the history."""

    def test_it_is_made_of_the_context(self, context):
        assert context.request == Request(context.messages, ("add", "look"), None, {}, "Be brief.")

    def test_it_has_the_options_of_the_model(self, context):
        context = with_services(context, model=ModelClient(ScriptedLLM(), {"temperature": 0.5}))
        assert context.request.options == {"temperature": 0.5}
        assert context.with_request(options={"seed": 1}).request.options == {
            "temperature": 0.5,
            "seed": 1,
        }

    def test_it_shows_later_edits_of_the_context(self, context):
        edited = context.with_request(tool_choice="required").replace(
            messages=context.messages.append({"role": "user", "content": "Well?"})
        )
        assert [message["content"] for message in edited.request.messages] == ["Hi", "Well?"]
        assert edited.with_tools(remove=["add"]).request.tools == ("look",)

    def test_a_change_affects_the_request_but_not_the_history(self, context):
        changed = context.with_request(messages=[{"role": "user", "content": "Short"}])
        assert [message["content"] for message in changed.request.messages] == ["Short"]
        assert changed.messages is context.messages
        assert context.request.messages is context.messages

    def test_changes_add_up_and_options_are_merged(self, context):
        changed = context.with_request(tools=["add"], options={"a": 1, "b": 1}).with_request(
            tool_choice="add", options={"b": 2}
        )
        request = changed.request
        assert (request.tools, request.tool_choice) == (("add",), "add")
        assert request.options == {"a": 1, "b": 2}

    def test_options_that_are_none_change_nothing(self, context):
        changed = context.with_request(options={"a": 1}).with_request(options=None)
        changed = changed.with_request(options={"b": 2})
        assert changed.request.options == {"a": 1, "b": 2}
        assert context.with_request(options=None).with_request(options={"a": 1}).request.options
        assert changed.request.replace(options=None).options == {"a": 1, "b": 2}

    def test_a_tool_that_is_removed_later_is_not_offered(self, context):
        changed = context.with_request(tools=["look", "add"]).with_tools(remove=["add"])
        assert changed.request.tools == ("look",)

    def test_tools_are_given_as_objects_or_by_name(self, context):
        changed = context.with_request(tools=[context.tools["look"], "add"])
        assert changed.request.tools == ("look", "add")

    def test_invalid_messages_are_repaired_and_the_repair_recorded_for_the_stage(self, context):
        orphan = {"role": "tool", "tool_call_id": "c9", "content": "x"}
        changed = context.evolve(trace=["mine"]).with_request(messages=[HI, orphan])
        assert not any(message["role"] == "tool" for message in changed.request.messages)
        [noted] = changed.notes
        assert noted.subject == "mine"
        assert len(noted.outcome) == 1

    def test_replace_makes_a_changed_copy_of_a_request(self, context):
        request = context.request
        changed = request.replace(options={"model": "small"}, tools=[context.tools["add"]])
        assert (changed.options, changed.tools) == ({"model": "small"}, ("add",))
        assert (request.options, request.tools) == ({}, ("add", "look"))


class TestWithTools:
    """Other tools are offered from now on."""

    def test_tools_are_added_and_removed_in_a_copy(self, context):
        changed = context.with_tools(add=named("find"), remove=["add"])
        assert list(changed.tools) == ["look", "find"]
        assert list(context.tools) == ["add", "look"]
        assert changed.request.tools == ("look", "find")

    def test_a_tool_to_remove_may_be_given_as_an_object(self, context):
        assert list(context.with_tools(remove=[context.tools["add"]]).tools) == ["look"]

    def test_a_tool_with_an_existing_name_replaces_that_tool(self, context):
        (other,) = named("add")
        changed = context.with_tools(add=[other])
        assert changed.tools["add"] is other
        assert list(changed.tools) == ["add", "look"]

    def test_a_tool_without_a_function_needs_a_resolver(self, context):
        context = with_services(context, resolver=Resolver(lambda call: "found"))
        assert "find" in context.with_tools(add=[{"name": "find"}]).tools


PENDING = PendingCall("q", "q", {}, "?")
LIST_OF_TOOLS = "expected a list of tools or their names, got"
A_CHOICE = "expected 'auto', 'none', 'required', the name of a tool, or the provider's form as a mapping, got"


@pytest.mark.parametrize(
    ("verb", "given", "text"),
    [
        ("replace", {"outputs": 1}, "replace: a context has no field 'outputs'; did you mean 'output'?"),
        ("replace", {"usage": 99}, "replace: a context has no field 'usage'"),
        ("replace", {"tool_calls_count": 99}, "replace: a context has no field 'tool_calls_count'"),
        ("stop", {"reason": ValueError("x")}, "stop: expected a Reason or a text, got ValueError"),
        ("stop", {"reason": " "}, "stop: expected a text that is not empty, got str ' '"),
        ("remember", {"name": ["x"], "value": 1}, "remember: name: expected a text that is not empty, got list"),
        ("pause", {"waiting": None}, "pause: expected a list of PendingCall objects, got nothing"),
        ("pause", {"waiting": PENDING}, "pause: expected a list of PendingCall objects, got PendingCall"),
        ("with_request", {"tool_choise": "none"}, "a request has no field 'tool_choise'; did you mean"),
        ("with_request", {"tools": "add"}, f"tools: {LIST_OF_TOOLS} str"),
        ("with_request", {"tools": None}, f"tools: {LIST_OF_TOOLS} NoneType"),
        ("with_request", {"tools": [None]}, "tools: expected tools or their names, got NoneType"),
        ("with_request", {"tools": [{"name": "add"}]}, "tools: expected tools or their names, got dict"),
        ("with_request", {"tool_choice": 5}, "tool_choice: expected a text or a mapping, got int"),
        ("with_request", {"tool_choice": "lock"}, f"tool_choice: {A_CHOICE} 'lock'; did you mean 'look'?"),
        ("with_request", {"tool_choice": ""}, f"tool_choice: {A_CHOICE} ''; known are auto, none, req"),
        ("with_request", {"options": [("seed", 1)]}, "options: expected a mapping, got list"),
        ("with_request", {"options": {5: 1}}, "options: expected names that are texts, got int"),
        ("with_request", {"instructions": 5}, "instructions: expected a text, got int"),
        ("with_request", {"tools": ["ad"]}, "with_request: there is no tool 'ad'; did you mean 'add'"),
        ("with_tools", {"remove": "add"}, f"with_tools: remove: {LIST_OF_TOOLS} str"),
        ("with_tools", {"remove": 5}, f"with_tools: remove: {LIST_OF_TOOLS} int"),
        ("with_tools", {"remove": [5]}, "with_tools: remove: expected tools or their names, got int"),
        ("with_tools", {"remove": ["loook"]}, "with_tools: there is no tool 'loook'; did you mean 'look'"),
        ("with_tools", {"add": [5]}, "with_tools: add[0]: expected a Tool"),
        ("with_tools", {"add": [{"name": "find"}]}, "with_tools: tool 'find' has no function, and there is no"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_an_error_that_says_what_is_right(context, verb, given, text):
    with pytest.raises((OptionError, ToolDefinitionError)) as caught:
        getattr(context, verb)(**given)
    assert str(caught.value).startswith(text)
    if verb == "with_request" and not text.startswith(verb):
        with pytest.raises(OptionError, match=f"^{re.escape(text)}"):
            context.request.replace(**given)


def test_changing_the_request_after_the_model_call_is_an_error(context):
    text = "with_request: the model was asked already; put the stage before ask_model"
    with pytest.raises(OptionError, match=f"^{text}$"):
        context.evolve(is_asked=True).with_request(tool_choice="none")


def test_data_that_contain_themselves_are_an_error(context):
    own = {"role": "assistant", "content": "Hi"}
    own["itself"] = own
    with pytest.raises(InvalidMessagesError, match="got a message that contains itself"):
        context.with_request(messages=[HI, own])
    with pytest.raises(OptionError, match="got a response that contains itself"):
        context.with_response(own)


def test_malformed_messages_are_an_error(context):
    with pytest.raises(InvalidMessagesError, match=r"messages\[0\]\.role"):
        context.with_request(messages=[{"role": "nobody", "content": "x"}])


def test_a_context_that_its_run_refers_to_has_a_repr():
    ctx = Context(History())
    ctx.run.ledger.dispatched = (ctx,)
    assert "dispatched=(...,)" in repr(ctx)
    assert "run=..." in repr(ctx.run)


def test_equality_of_calls_ignores_the_results_of_validation():
    call = ToolCall("a", "f", "{}")
    assert call == dataclasses.replace(call, input={}, fingerprint="f00d")
    assert call != ToolCall("a", "f", '{"x": 1}')
