"""Tools made of functions or schemas, and their options; an invalid one is an error when it is made."""

import copy
import functools

import pytest

from treadle import Loop
from treadle.errors import OptionError, ToolDefinitionError
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import Repeats, Tool, ToolContext, tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def test_a_tool_can_still_be_called_as_its_function():
    assert add(2, 3) == 5
    assert add(a=2, b=3) == 5


def test_an_unknown_option_is_an_error_that_names_the_closest_one():
    text = r"^tool: unknown option 'retires'; did you mean 'retries'\?$"
    for make in (tool, lambda **options: tool(add, **options)):
        with pytest.raises(OptionError, match=text):
            make(retires=3)


class TestInvoke:
    """The call of a tool's function with valid arguments and the context of the run."""

    CONTEXT = ToolContext("c1", "t", 1)

    def invoke(self, made, **arguments):
        return made.invoke(arguments, self.CONTEXT)

    @pytest.mark.parametrize(
        ("signature", "arguments", "outcome"),
        [
            ("a", {"a": 1}, 1),
            ("a: int", {"a": 1}, 1),
            ("a: int = 5", {}, 5),
            ("a: list", {"a": [[1]]}, [[1]]),
            ("a: set[int]", {"a": [1, 1]}, {1}),
            ("a: int, run: ToolContext", {"a": 1}, 1),
            ("a: list[int], run: ToolContext", {"a": [1]}, [1]),
            ("run: ToolContext, a: int, /", {"a": 1}, 1),
            ("a: int, run: ToolContext, /", {"a": 1}, 1),
            ("run: ToolContext, a: set[int], /", {"a": [1]}, {1}),
            ("a: int, /, run: ToolContext", {"a": 1}, 1),
            ("a, **rest: object", {"a": 1, "b": 2}, 1),
        ],
    )
    def test_it_passes_arguments_and_context_as_the_function_takes_them(
        self, signature, arguments, outcome
    ):
        space = {"ToolContext": ToolContext}
        exec(f"def take({signature}): return a, locals().get('run')", space)  # noqa: S102
        has_context = "run" in signature
        returned = self.invoke(tool(space["take"]), **arguments)
        assert returned == (outcome, self.CONTEXT if has_context else None)

    def test_it_needs_a_context_only_for_a_function_that_takes_one(self):
        assert not add.takes_context
        assert add.invoke({"a": 1, "b": 2}, None) == 3

    @pytest.mark.parametrize("hint", ["list", "dict", "list[dict[str, int]]", "object"])
    @pytest.mark.parametrize("context", ["", ", run: ToolContext"])
    def test_a_function_that_changes_nested_arguments_changes_only_its_own(self, hint, context):
        space = {"ToolContext": ToolContext}
        exec(f"def take(a: {hint}{context}): a.clear()", space)  # noqa: S102
        arguments = {"a": {"x": {"y": 1}} if hint == "dict" else [{"y": 1}]}
        before = copy.deepcopy(arguments)
        self.invoke(tool(space["take"]), **arguments)
        assert arguments == before


def test_it_has_the_form_of_openai():
    assert add.as_openai() == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two integers.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    }


def test_the_form_of_openai_is_a_new_copy_each_time():
    add.as_openai()["function"]["parameters"]["properties"].clear()
    assert add.as_openai()["function"]["parameters"]["properties"] != {}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 129, "add\n", "\u00e4", 5, None])
def test_a_name_that_providers_refuse_is_an_error(name):
    with pytest.raises(ToolDefinitionError, match="name: expected 1 to 128 letters"):
        Tool(name)
    for accepted in ("a", "get.weather", "a-b_C9", "x" * 128):
        assert Tool(accepted).name == accepted


@pytest.mark.parametrize("schema", [5, None, "object", [SCHEMA], {"type": "array"}])
def test_an_invalid_schema_is_an_error_that_names_the_tool(schema):
    text = "tool 't': input_schema: expected a (JSON Schema|schema of type 'object')"
    with pytest.raises(ToolDefinitionError, match=text):
        Tool("t", input_schema=schema)


def test_the_schema_is_copied():
    given = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = Tool("t", input_schema=given)
    given["properties"]["a"]["type"] = "string"
    assert made.problems_of({"a": 1}) == []
    assert made.input_schema["properties"]["a"] == {"type": "integer"}


def test_a_raw_schema_is_checked_and_its_function_called_with_the_arguments():
    made = Tool("t", "", SCHEMA, fn=lambda a: a + 1)
    assert made.problems_of({"a": "x"}) == ['a: expected integer, got string "x"']
    assert made.invoke({"a": 1}, ToolContext("c", "t", 1)) == 2


def test_a_tool_without_a_function_cannot_be_called():
    with pytest.raises(ToolDefinitionError, match="tool 't' has no function; a resolver runs it"):
        Tool("t")()
    with pytest.raises(ToolDefinitionError, match="has no function"):
        Tool("t").invoke({}, None)


async def fetch(): ...


class Fetcher:
    async def __call__(self): ...


@pytest.mark.parametrize(
    ("fn", "is_async"),
    [
        (fetch, True),
        (functools.partial(functools.partial(fetch)), True),
        (Fetcher(), True),
        (Fetcher().__call__, True),
        (lambda: None, False),
        (None, False),
    ],
)
def test_whether_it_is_async_is_decided_once(fn, is_async):
    assert Tool("t", fn=fn).is_async is is_async


def steps(ctx, call):
    yield from ()


@pytest.mark.parametrize(
    ("made", "by_itself"),
    [(Tool("t", fn=fetch), True), (Tool("t", steps=steps), True), (Tool("t"), False)],
)
def test_whether_it_needs_a_resolver_to_run(made, by_itself):
    assert made.has_implementation is by_itself


class TestLockKeys:
    """The lock keys of a call, in sorted order."""

    @pytest.mark.parametrize(
        ("lock", "keys"),
        [
            (None, ()),
            ("k", ("k",)),
            (lambda arguments: None, ()),
            (lambda arguments: f"file:{arguments['path']}", ("file:a",)),
            (lambda arguments: ["b", "a", "b"], ("a", "b")),
            (lambda arguments: {"b", "a"}, ("a", "b")),
            (lambda arguments: (), ()),
            (lambda arguments: (one for one in [2, 10]), ("10", "2")),
        ],
    )
    def test_a_lock_is_a_key_or_a_function_of_the_arguments(self, lock, keys):
        assert Tool("t", lock=lock).lock_keys({"path": "a"}) == keys

    def test_an_exception_of_the_function_is_raised(self):
        with pytest.raises(KeyError):
            Tool("t", lock=lambda arguments: arguments["path"]).lock_keys({})


class TestApprovalOf:
    """The question that asks for the approval of a call; None if it needs none."""

    @pytest.mark.parametrize(
        ("rule", "question"),
        [
            (False, None),
            (True, "'t' needs approval"),
            (lambda arguments: False, None),
            (lambda arguments: None, None),
            (lambda arguments: "", None),
            (lambda arguments: True, "'t' needs approval"),
            (lambda arguments: 5, "'t' needs approval"),
            (lambda arguments: f"Pay {arguments['n']}?", "Pay 7?"),
            (
                lambda arguments: arguments["missing"],
                "the rule for approvals raised KeyError: 'missing'",
            ),
        ],
    )
    def test_a_rule_decides_whether_to_ask_and_the_question(self, rule, question):
        """If the rule raises, a person has to decide."""
        assert Tool("t", requires_approval=rule).approval_question({"n": 7}) == question


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        (None, {"q": 1, "lang": "en", "why": "x"}),
        (["q"], {"q": 1}),
        (("lang", "q"), {"lang": "en", "q": 1}),
        (["q", "missing"], {"q": 1}),
        ([], {}),
    ],
)
def test_the_fields_that_decide_whether_two_calls_are_the_same(fields, key):
    arguments = {"q": 1, "lang": "en", "why": "x"}
    assert Tool("t", dedupe_fields=fields).dedupe_key(arguments) == key


def test_a_function_of_a_given_schema_receives_its_own_copy_of_arguments():
    arguments = {"x": []}
    Tool("t", fn=lambda x: x.append(1)).invoke(arguments, None)
    assert arguments == {"x": []}


class TestCallInContext:
    """The function of a tool with a given schema may be an object that takes the context of a call."""

    def test_the_loop_calls_it_with_the_arguments_and_the_context(self):
        class Remote:
            async def __call__(self, **arguments):
                return "without"

            async def call_in_context(self, arguments, context):
                return f"{arguments} {context.call_id}"

        schema = {"type": "object", "properties": {"context": {"type": "string"}}}
        made = Tool("remote", input_schema=schema, fn=Remote())
        model = ScriptedLLM(calls(call("remote", "c1", context="x")), "Done.")
        result = Loop.run_sync("Hi", model, tools=[made])
        assert result.messages[2]["content"] == "{'context': 'x'} c1"


POSITIVE = [0, -1, 1.5, "2", True]
FLAGS = [1, 0, "yes", None]


async def coroutine_function(_arguments):
    """An async function, where the option takes a sync one."""


WRONG = {
    "timeout": ("seconds above 0", [0, -1, float("nan"), "5", True]),
    "retries": ("a whole number of at least 0", [-1, 1.5, "2", None, True]),
    "max_parallel": ("a whole number of at least 1", POSITIVE),
    "max_uses": ("a whole number of at least 0", [-1, 1.5, "2", True]),
    "parallel_safe": ("True or False", [1, "yes"]),
    "read_only": ("True or False", [1, "yes"]),
    "idempotent": ("True or False", [1, "yes"]),
    "requires_fresh_input": ("True or False", FLAGS),
    "dedupe": ("'evidence', 'strict' or 'off'", [True, False, "loose", ["off"]]),
    "volatile": ("True or False", FLAGS),
    "terminal": ("True or False", FLAGS),
    "dedupe_fields": ("names of fields", ["q", [1], ("q", None), {"q"}, 5]),
    "lock": (
        "a key, or a sync function of the arguments that makes one",
        [5, ["a"], True, coroutine_function],
    ),
    "requires_approval": (
        "True, False, or a sync function of the arguments",
        [1, "yes", None, coroutine_function],
    ),
}


def pairs(table):
    return [(option, value) for option, values in table.items() for value in values]


@pytest.mark.parametrize(
    ("option", "value"), pairs({option: values for option, (_, values) in WRONG.items()})
)
def test_an_invalid_option_is_an_error_with_tool_expectation_and_value_or_type(option, value):
    expected, _ = WRONG[option]
    with pytest.raises(ToolDefinitionError) as caught:
        Tool("t", **{option: value})
    got = (repr(value), type(value).__name__)
    assert str(caught.value) in {
        f"tool 't': {option}: expected {expected}, got {one}" for one in got
    }


def test_by_default_a_tool_is_parallel_safe_and_has_no_limits():
    made = Tool("t")
    assert made.parallel_safe
    assert made.read_only is False
    assert made.dedupe is None  # as the loop says
    assert made.requires_approval is False
    assert not any(
        (made.idempotent, made.requires_fresh_input, made.volatile, made.terminal, made.retries)
    )
    bounds = (made.max_parallel, made.max_uses, made.lock, made.dedupe_fields, made.timeout)
    assert bounds == (None,) * 5


class TestAnnotations:
    """MCP's annotations are the defaults; an explicit option wins."""

    @pytest.mark.parametrize(
        ("annotations", "parallel_safe", "read_only", "idempotent"),
        [
            ({}, True, False, False),
            ({"readOnlyHint": True}, True, True, True),
            ({"readOnlyHint": False}, True, False, False),
            ({"destructiveHint": True}, False, False, False),
            ({"destructiveHint": False}, True, False, False),
            ({"idempotentHint": True}, True, False, True),
            ({"idempotentHint": True, "destructiveHint": True}, False, False, True),
            ({"readOnlyHint": True, "destructiveHint": True}, True, True, True),
            ({"readOnlyHint": None, "destructiveHint": None, "title": "T"}, True, False, False),
        ],
    )
    def test_they_are_the_defaults_of_options(
        self, annotations, parallel_safe, read_only, idempotent
    ):
        """A tool that only reads is not destructive, whatever its other hints."""
        made = Tool("t", annotations=annotations)
        found = (made.parallel_safe, made.read_only, made.idempotent)
        assert found == (parallel_safe, read_only, idempotent)

    def test_read_only_given_as_an_option_counts_as_the_hint_does(self):
        made = Tool("t", annotations={"readOnlyHint": True}, read_only=False)
        assert (made.read_only, made.idempotent) == (False, False)
        made = Tool("t", annotations={"destructiveHint": True}, read_only=True)
        assert (made.parallel_safe, made.idempotent) == (True, True)

    @pytest.mark.parametrize("value", [True, False])
    @pytest.mark.parametrize("hint", [True, False])
    def test_an_explicit_value_wins(self, value, hint):
        annotations = {"readOnlyHint": hint, "destructiveHint": hint, "idempotentHint": hint}
        made = Tool("t", parallel_safe=value, idempotent=value, annotations=annotations)
        assert (made.parallel_safe, made.idempotent) == (value, value)

    def test_they_are_copied(self):
        given = {"title": "T"}
        made = Tool("t", annotations=given)
        given["title"] = "other"
        assert made.annotations == {"title": "T"}


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "evidence"),
        ({"dedupe": "strict"}, "strict"),
        ({"volatile": True}, "off"),
        ({"dedupe": "strict", "volatile": True}, "off"),
        ({"idempotent": True, "annotations": {"readOnlyHint": True}}, "evidence"),
    ],
)
def test_volatile_is_off_and_side_effects_say_nothing_of_duplicates(options, mode):
    assert Repeats(mode="evidence").mode_of(Tool("t", **options)) == mode
