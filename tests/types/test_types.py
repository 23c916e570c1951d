"""What type checkers infer from the public names: ``make types`` checks this file with mypy and pyright.

The functions are tests too, so that what the types promise is what happens. A line with two ``ignore`` comments
is an error for both checkers. If one of them no longer reports it, its comment is unused, which is an error as
well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, assert_never, assert_type

import anyio
import pytest
from mcp.types import Tool as MCPTool
from pydantic import BaseModel
from typing_extensions import TypedDict

from treadle import (
    Approval,
    BudgetExhausted,
    CircuitBroken,
    CompactionStalled,
    Context,
    DeadlineExceeded,
    EmptyResponse,
    Err,
    Event,
    EventStream,
    InvalidInput,
    LimitNotMeasurable,
    Limits,
    LLMError,
    Loop,
    LoopDetected,
    MaxIterationsReached,
    Message,
    Ok,
    OptionError,
    Output,
    OutputMissing,
    Paused,
    Pipeline,
    PipelineError,
    PipelineFailed,
    Reason,
    Request,
    Response,
    ResponseIncomplete,
    Result,
    Retry,
    RunCancelled,
    RunHandle,
    RunState,
    StageError,
    StoppedByStage,
    SubagentEvent,
    TextDelta,
    Tool,
    ToolContext,
    ToolDefinitionError,
    ToolLike,
    Usage,
    approve,
    default_stages,
    deny,
    edit,
    presets,
    stage,
    tool,
)
from treadle.effects import Now, Steps
from treadle.pipeline.streams import StreamPipeline
from treadle.stages import ask_model, circuit_breaker, plan_calls
from treadle.testing import ScriptedLLM, call, calls


class Invoice(BaseModel):
    """An invoice."""

    total: int


@dataclass
class Order:
    """An order."""

    total: int


class Ticket(TypedDict):
    """A ticket."""

    total: int


@dataclass(frozen=True)
class Deps:
    """What tools need."""

    user: str


def giving(name: str, **arguments: Any) -> ScriptedLLM:
    """A model that gives an output."""
    return ScriptedLLM(calls(call(name, **arguments)))


# The output of a run.


def test_without_output_the_output_is_the_text() -> None:
    result = Loop.run_sync("Hi", ScriptedLLM("Hello"))
    assert_type(result, Ok[str] | Err | Paused)
    assert_type(result.output, str | None)
    assert_type(result.unwrap(), Response)
    assert isinstance(result, Ok)
    assert_type(result.output, str)
    assert_type(result.response, Response)
    assert_type(result.response.content, str | None)
    assert_type(result.run, RunState)
    assert_type(result.usage, Usage)
    assert result.output == "Hello"


def test_a_pydantic_model_is_the_output() -> None:
    result = Loop.run_sync("?", giving("Invoice", total=9), output=Invoice)
    assert_type(result, Ok[Invoice] | Err | Paused)
    assert isinstance(result, Ok)
    assert_type(result.output, Invoice)
    assert_type(result.output.total, int)
    assert result.output == Invoice(total=9)
    with pytest.raises(AttributeError):
        assert result.output.nope is None  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def test_a_dataclass_and_a_typed_dict_are_the_output() -> None:
    order = Loop.run_sync("?", giving("Order", total=9), output=Order)
    assert_type(order, Ok[Order] | Err | Paused)
    ticket = Loop.run_sync("?", giving("Ticket", total=9), output=Ticket)
    assert_type(ticket, Ok[Ticket] | Err | Paused)
    assert (order.output, ticket.output) == (Order(9), {"total": 9})


def test_a_scalar_and_a_list_are_the_output() -> None:
    number = Loop.run_sync("?", giving("final_answer", value=9), output=int)
    assert_type(number, Ok[int] | Err | Paused)
    many = Loop.run_sync("?", giving("final_answer", value=[{"total": 9}]), output=list[Invoice])
    assert_type(many, Ok[list[Invoice]] | Err | Paused)
    table = Loop.run_sync("?", giving("final_answer", a=1), output=dict[str, int])
    assert_type(table, Ok[dict[str, int]] | Err | Paused)
    assert (number.output, many.output, table.output) == (9, [Invoice(total=9)], {"a": 1})


def test_one_of_several_alternatives_is_the_output() -> None:
    pair = Loop.run_sync("?", giving("Order", total=9), output=(Invoice, Order))
    assert_type(pair, Ok[Invoice | Order] | Err | Paused)
    same = Loop.run_sync("?", giving("Invoice", total=9), output=[Invoice])
    assert_type(same, Ok[Invoice] | Err | Paused)
    text = Loop.run_sync("?", ScriptedLLM("no invoice"), output=(Invoice, str))
    assert_type(text, Ok[Invoice | str] | Err | Paused)
    assert (pair.output, same.output, text.output) == (Order(9), Invoice(total=9), "no invoice")


def test_a_union_and_a_json_schema_are_checked_at_run_time_only() -> None:
    union = Loop.run_sync("?", giving("Order", total=9), output=Invoice | Order)
    assert_type(union, Ok[Any] | Err | Paused)
    schema: Mapping[str, Any] = {"type": "object", "properties": {}}
    made = Loop.run_sync("?", giving("final_answer"), output=schema)
    assert_type(made, Ok[Any] | Err | Paused)
    assert (union.output, made.output) == (Order(9), {})


def test_a_loop_has_the_type_of_its_output() -> None:
    loop = Loop(output=Invoice)
    assert_type(loop, Loop[Invoice])
    assert_type(Loop(), Loop[str])
    assert_type(Loop(output=(Invoice, Order)), Loop[Invoice | Order])
    assert_type(loop.with_options(max_iterations=2), Loop[Invoice])
    assert_type(loop.with_options(output=Order), Loop[Order])
    result = loop.run_sync("?", giving("Invoice", total=9))
    assert_type(result, Ok[Invoice] | Err | Paused)
    other = loop.run_sync("?", giving("Order", total=9), output=Order)
    assert_type(other, Ok[Order] | Err | Paused)
    assert (result.output, other.output) == (Invoice(total=9), Order(9))


# The ways to run.


def test_all_ways_to_run_have_the_type_of_the_output() -> None:
    async def main() -> None:
        text = await Loop.run("Hi", ScriptedLLM("Hello"))
        assert_type(text, Ok[str] | Err | Paused)
        result = await Loop.run("?", giving("Invoice", total=9), output=Invoice)
        assert_type(result, Ok[Invoice] | Err | Paused)
        loop = Loop(output=Invoice, llm_send_fn=giving("Invoice", total=9))
        assert_type(await loop.run("?"), Ok[Invoice] | Err | Paused)
        async with Loop.stream("?", giving("Invoice", total=9), output=Invoice) as events:
            assert_type(events, EventStream[Invoice])
            async for event in events:
                assert_type(event, Event)
        assert_type(events.result, Ok[Invoice] | Err | Paused)
        assert events.result.output == Invoice(total=9)
        streamed = loop.stream("?", giving("Invoice", total=9))
        assert_type(streamed, AbstractAsyncContextManager[EventStream[Invoice]])

    anyio.run(main)
    steps = Loop.steps("?", giving("Invoice", total=9), output=Invoice)
    assert_type(steps, Steps[Ok[Invoice] | Err | Paused])
    steps.close()


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def paused_run() -> Paused:
    """A run that waits for approval."""
    result = Loop.run_sync("?", giving("pay", amount=5), tools=[pay], output=Invoice)
    assert isinstance(result, Paused)
    return result


def test_all_ways_to_resume_have_the_type_of_the_output() -> None:
    loop = Loop(tools=[pay], output=Invoice)

    def model() -> ScriptedLLM:
        return giving("Invoice", total=5)

    def decisions(paused: Paused) -> dict[str, Approval]:
        return {one.id: approve for one in paused.pending}

    paused = paused_run()
    result = loop.resume_sync(paused, decisions(paused), model())
    assert_type(result, Ok[Invoice] | Err | Paused)
    assert result.output == Invoice(total=5)

    async def main() -> None:
        paused = paused_run()
        result = await Loop.resume(paused, decisions(paused), model(), tools=[pay], output=Invoice)
        assert_type(result, Ok[Invoice] | Err | Paused)
        paused = paused_run()
        async with loop.resume_stream(paused.state, decisions(paused), model()) as events:
            assert_type(events, EventStream[Invoice])
        assert result.output == Invoice(total=5)

    anyio.run(main)
    assert_type(deny("no"), Approval)
    assert_type(edit({"amount": 1}), Approval)


# Results and reasons.


def test_results_are_matched_by_type() -> None:
    def text_of(result: Result[Invoice]) -> str:
        match result:
            case Ok(response):
                assert_type(response, Response)
                assert_type(result, Ok[Invoice])
                return str(response.content)
            case Err(reason):
                assert_type(result, Err)
                assert_type(reason, Reason)
                return str(reason)
            case Paused(pending):
                return pending[0].question
            case _:
                assert_never(result)

    assert text_of(Loop.run_sync("", ScriptedLLM(), output=Invoice)).startswith("messages: ")


def test_a_result_without_a_case_is_an_error() -> None:
    def text_of(result: Result[str]) -> str:
        match result:
            case Ok(response):
                return str(response.content)
            case Err(reason):
                return str(reason)
            case _:
                assert_never(result)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert text_of(Loop.run_sync("Hi", ScriptedLLM("Hello"))) == "Hello"


def test_the_reasons_are_a_closed_union() -> None:
    def kind_of(reason: Reason) -> str:
        match reason:
            case MaxIterationsReached() | BudgetExhausted() | LimitNotMeasurable():
                return "limit"
            case DeadlineExceeded(seconds):
                assert_type(seconds, float)
                return "time"
            case CircuitBroken() | LoopDetected() | CompactionStalled():
                return "guard"
            case LLMError() | EmptyResponse() | ResponseIncomplete() | OutputMissing():
                return "model"
            case StoppedByStage() | PipelineFailed():
                return "stage"
            case InvalidInput(problems):
                assert_type(problems, tuple[str, ...])
                return "input"
            case RunCancelled():
                return "caller"
            case _:
                assert_never(reason)

    result = Loop.run_sync("", ScriptedLLM())
    assert isinstance(result, Err)
    assert kind_of(result.reason) == "input"


def test_a_reason_without_a_case_is_an_error() -> None:
    def is_input(reason: InvalidInput | RunCancelled) -> bool:
        match reason:
            case InvalidInput():
                return True
            case _:
                assert_never(reason)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert is_input(InvalidInput(("?",)))


def test_what_a_result_has_depends_on_its_type() -> None:
    result = Loop.run_sync("Hi", ScriptedLLM("Hello"))
    with pytest.raises(AttributeError):
        assert result.reason is None  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert isinstance(result, Ok)
    with pytest.raises(AttributeError):
        assert result.response.nope is None  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def test_events_are_matched_by_type() -> None:
    seen: list[str] = []

    def observe(event: Event) -> None:
        match event:
            case TextDelta(text=text):
                assert_type(text, str)
                seen.append(text)
            case SubagentEvent(event=inner):
                assert_type(inner, Event)
            case _:
                assert_type(event.path, tuple[str, ...])
                assert_type(event.seq, int)

    Loop.run_sync("Hi", ScriptedLLM(["Hel", "lo"]), on_event=observe)
    assert seen == ["Hel", "lo"]


# Tools.


@tool
def add(a: int, b: int = 0) -> int:
    """Add two integers."""
    return a + b


@tool(name="fetch", timeout=3, dedupe="off")
async def fetch_page(url: str) -> bytes:
    """Fetch a page."""
    return url.encode()


@tool
def count(to: int) -> Iterator[int]:
    """Count."""
    yield from range(to)


@tool
async def watch(name: str) -> AsyncIterator[str]:
    """Watch."""
    yield name


@tool
def whose(context: ToolContext[Deps], greeting: str) -> str:
    """Name the user."""
    assert_type(context, ToolContext[Deps])
    assert_type(context.deps, Deps)
    assert_type(context.deps.user, str)
    return f"{greeting} {context.deps.user}"


class Shop:
    """Its methods are tools."""

    def price(self, name: str) -> float:
        """The price of an article."""
        return float(len(name))


def test_a_tool_keeps_the_signature_of_its_function() -> None:
    assert_type(add(1, b=2), int)
    assert_type(tool(Shop().price)("pear"), float)
    assert_type(count(3), Iterator[int])
    assert_type(watch("x"), AsyncIterator[str])
    assert add(1, b=2) == 3
    assert [*count(3)] == [0, 1, 2]

    async def main() -> None:
        page = await fetch_page("u")
        assert_type(page, bytes)
        assert page == b"u"

    anyio.run(main)


def test_a_tool_called_with_wrong_arguments_is_an_error() -> None:
    with pytest.raises(TypeError):
        add("1", 2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        add(1, c=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        add()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_a_tool_of_a_dict_takes_anything() -> None:
    made = tool({"name": "look_up", "input_schema": {"type": "object"}}, timeout=3)
    assert_type(made, Tool)
    assert_type(made.name, str)


def test_functions_tools_models_and_dicts_are_tools() -> None:
    def plain(text: str) -> str:
        """Return the text."""
        return text

    schema = {"name": "look_up", "input_schema": {"type": "object"}}
    tools: list[ToolLike] = [add, plain, fetch_page, whose, tool(Invoice), tool(schema)]
    loop = Loop(tools=[*tools, Shop().price], resolve_tool=print)
    assert_type(loop.tools, Mapping[str, Tool])
    described: ToolLike = MCPTool(name="described", input_schema={"type": "object"})
    assert set(Loop(tools=[described], resolve_tool=print).tools) == {"described"}
    deps = Deps(user="Ada")
    model = ScriptedLLM(calls(call("whose", greeting="Hi")), "ok")
    result = Loop.run_sync("?", model, tools=[whose], deps=deps)
    assert [one["content"] for one in result.messages if one["role"] == "tool"] == ["Hi Ada"]


def test_a_value_that_is_no_tool_is_an_error() -> None:
    with pytest.raises(ToolDefinitionError):
        Loop(tools=[42])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ToolDefinitionError):
        Loop(tools=["add"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    with pytest.raises(ToolDefinitionError):
        Loop.run_sync("?", ScriptedLLM("x"), tools=[add, None])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def test_an_unknown_option_of_a_tool_is_an_error() -> None:
    with pytest.raises(OptionError):
        tool(retires=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(ToolDefinitionError):
        tool(retries="3")(print)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def test_a_loop_is_a_tool() -> None:
    made = Loop().as_tool("ask", "Ask somebody.", ScriptedLLM("x"), timeout=5)
    assert_type(made, Tool)
    with pytest.raises(OptionError):
        Loop().as_tool("ask", "Ask.", ScriptedLLM("x"), timeuot=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# Options.


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(OptionError):
        Loop(max_iteration=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(OptionError):
        Loop.run_sync("?", ScriptedLLM("x"), max_iteration=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(OptionError):
        Loop().with_options(max_iteration=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Limits(max_iteration=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_a_wrong_kind_of_value_is_an_error() -> None:
    with pytest.raises(OptionError):
        Loop(sequential="xml")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError):
        Loop(max_iterations="3")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError):
        Loop(dedupe=True)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionError):
        Loop(llm_send_fn=5)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def test_presets_are_options() -> None:
    loop = Loop(**presets.runax(), tools=[add])
    assert_type(loop, Loop[str])
    assert_type(Loop(**presets.recommended(), output=Invoice), Loop[Invoice])
    assert_type(loop.with_options(**presets.planck()), Loop[str])


def test_validators_and_retry() -> None:
    def check(invoice: Invoice) -> Invoice | None:
        if invoice.total < 0:
            raise Retry("the total is negative")
        return None

    async def check_later(ctx: Context, invoice: Invoice) -> None:
        assert ctx.iteration

    model = giving("Invoice", total=9)
    checks: Sequence[Callable[..., Any]] = [check, check_later]
    result = Loop.run_sync("?", model, output=Output(Invoice, validators=checks))
    assert_type(result, Ok[Invoice] | Err | Paused)
    assert result.output == Invoice(total=9)


def test_a_lambda_is_an_observer() -> None:
    paths: list[tuple[str, ...]] = []
    loop = Loop(on_event=lambda event: paths.append(event.path))
    assert loop.run_sync("Hi", ScriptedLLM("Hello")).output == "Hello"
    assert set(paths) == {()}


def test_messages_are_text_or_dicts() -> None:
    messages: list[Message] = [{"role": "user", "content": "Hi"}]
    plain: list[dict[str, str]] = [{"role": "user", "content": "Hi"}]
    for given in ("Hi", messages, plain):
        assert Loop.run_sync(given, ScriptedLLM("Hello")).output == "Hello"
    again = Loop.run_sync(Loop.run_sync("Hi", ScriptedLLM("1")).messages, ScriptedLLM("2"))
    assert again.output == "2"
    result = Loop.run_sync(42, ScriptedLLM("x"))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    assert isinstance(result, Err)


def test_a_handle_steers_a_run() -> None:
    handle = RunHandle()
    assert_type(handle.state, RunState | None)
    assert_type(handle.result, Ok[Any] | Err | Paused | None)
    assert_type(handle.steer("Go on."), bool)
    with pytest.raises(OptionError):
        handle.steer(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Stages and pipelines.


@stage
def shorten(ctx: Context, *, longest: int = 10) -> Context:
    """Shorten the instructions."""
    assert_type(ctx.request, Request)
    assert_type(ctx.run.has_listeners, bool)
    return ctx.with_request(instructions=(ctx.instructions or "")[:longest])


@stage(requires=("response",))
def time_it(ctx: Context) -> Steps[Context]:
    """Ask for the time."""
    yield Now()
    return ctx


def test_a_stage_keeps_the_options_of_its_function() -> None:
    @stage
    def apply(ctx: Context) -> Context:
        assert_type(shorten(ctx), Context)
        return shorten(ctx, longest=3)

    assert_type(shorten(longest=3).options, Mapping[str, Any])
    model = ScriptedLLM("Hello")
    loop = Loop(stages=[apply, *default_stages(), time_it], instructions="Be brief.")
    assert loop.run_sync("Hi", model).output == "Hello"
    assert model.sent[0].messages[0]["content"] == "Be "


def test_an_unknown_option_of_a_stage_is_an_error() -> None:
    with pytest.raises(PipelineError):
        circuit_breaker(treshold=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(PipelineError):
        plan_calls(seqential="defer")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(PipelineError):
        shorten(longst=2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    assert_type(ask_model(max_retries=3).options, Mapping[str, Any])


def test_an_unknown_field_of_a_context_is_an_error() -> None:
    @stage
    def mistyped(ctx: Context) -> Context:
        with pytest.raises(TypeError):
            ctx.replace(typo=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        with pytest.raises(OptionError):
            ctx.with_request(temperature=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        with pytest.raises(TypeError):
            ctx.stop(42)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        assert_type(ctx.replace(messages=ctx.messages), Context)
        assert_type(ctx.guide("Go on."), Context)
        assert_type(ctx.messages.to_list(), list[dict[str, Any]])
        return ctx

    assert Loop.run_sync("Hi", ScriptedLLM("x"), stages=[mistyped, *default_stages()]).output == "x"


def test_a_pipeline_is_generic_in_its_item() -> None:
    def double(number: int) -> int:
        return 2 * number

    numbers = Pipeline[int](double)
    assert_type(numbers.run_sync(1), int)
    assert_type(StreamPipeline[int](double).run_all_sync(1), list[int])
    assert numbers.run_sync(1) == 2
    assert_type(numbers.insert_after("double", str), Pipeline[int])
    assert_type(Pipeline(double, item=int), Pipeline[int])
    many = StreamPipeline(double, item=int)
    assert_type(many.insert_after("double", str), StreamPipeline[int])
    assert_type(Loop().pipeline, Pipeline[Context])
    with pytest.raises(StageError, match="double"):
        numbers.run_sync(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
