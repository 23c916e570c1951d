"""Arguments that are no JSON object, of every kind that models have made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torture_suite.protocol import Fault, Scenario
from torture_suite.script import Reply, call, calls, says
from torture_suite.toolbox import PING, WEATHER, ran_with, reported_briefly

NO_JSON = (
    "json",
    "parse",
    "parsing",
    "decode",
    "malformed",
    "syntax",
    "object",
    "dict",
    "mapping",
    "unterminated",
    "delimiter",
    "invalid arguments",
)
"""Words of which there is one in any text that says that arguments are no JSON object."""

BERN = {"city": "Bern"}


def _malformed(
    name: str,
    complaint: str,
    source: str,
    text: str,
    *,
    meant: Mapping[str, Any] | None = None,
    words: tuple[str, ...] = (),
    **more: Any,
) -> Scenario:
    """A call with arguments that are no object; once this is reported, the model corrects the call.

    Args:
        name: the scenario's.
        complaint: the scenario's.
        source: the scenario's.
        text: the arguments.
        meant: what was meant, where it is so plain that a loop may as well mend it and run the call.
        words: more words of which one would do.
        **more: other fields of the scenario.
    """
    repaired = {} if meant is None else {"get_weather": meant}
    return Scenario(
        name=name,
        complaint=complaint,
        source=source,
        script=(calls(call("get_weather", text)), calls(call("get_weather", BERN)), says("done")),
        tools=(WEATHER,),
        faults=(Fault((*NO_JSON, *words), 0, repaired),),
        at_most={"get_weather": 1},
        **more,
    )


SCENARIOS = (
    _malformed(
        "arguments-cut-off",
        "Arguments that break off in the middle end the run with a bare JSONDecodeError.",
        "camel-ai/camel#4338",
        '{"city": "Be',
    ),
    _malformed(
        "arguments-cut-off-after-a-value",
        "Arguments that lack their end are repaired, and the tool runs with half of what was meant.",
        "livekit/agents#4974",
        '{"city": "Be", "days":',
    ),
    _malformed(
        "arguments-in-single-quotes",
        "Arguments in single quotes, as Python prints a dict, stop the agent.",
        "huggingface/smolagents#122",
        "{'city': 'Bern'}",
        meant=BERN,
    ),
    _malformed(
        "arguments-with-a-trailing-comma",
        "A trailing comma makes the loop run the tool with no arguments at all.",
        "NousResearch/hermes-agent#1796",
        '{"city": "Bern",}',
        meant=BERN,
    ),
    _malformed(
        "arguments-with-unquoted-keys",
        "Keys without quotes are a parse error of which the model never hears.",
        "openai/openai-agents-js#799",
        '{city: "Bern"}',
        meant=BERN,
    ),
    _malformed(
        "arguments-of-python",
        "Python's literals in place of JSON's end the run.",
        "Python literals in arguments",
        '{"city": "Bern", "days": None}',
        meant=BERN,
    ),
    _malformed(
        "arguments-in-prose",
        "The model writes a sentence where arguments belong, and the agent crashes.",
        "langchain-ai/langchain#10433",
        "the weather in Bern, please",
    ),
    _malformed(
        "arguments-in-a-code-fence",
        "Arguments wrapped in a Markdown fence are not recognised as JSON.",
        "JSON in a Markdown fence",
        '```json\n{"city": "Bern"}\n```',
        meant=BERN,
    ),
    _malformed(
        "arguments-encoded-twice",
        "Arguments that are a JSON string of JSON: the argument after ** must be a mapping, not str.",
        "FoundationAgents/OpenManus#989",
        '"{\\"city\\": \\"Bern\\"}"',
        meant=BERN,
    ),
    _malformed(
        "arguments-run-together",
        "The arguments of two calls are joined in one, which does not parse.",
        "ogx-ai/ogx#4430",
        '{"city": "Bern"}{"city": "Basel"}',
    ),
    _malformed(
        "arguments-a-list",
        "A list where an object belongs is valid JSON, and crashes the validation itself.",
        "HKUDS/nanobot#1507",
        '["Bern"]',
        words=("list", "array"),
    ),
    _malformed(
        "arguments-a-number",
        "A bare number where an object belongs crashes what dispatches the call.",
        "lsdefine/GenericAgent#746",
        "42",
        words=("int", "number"),
    ),
    _malformed(
        "arguments-null",
        "The text null where an object belongs crashes what dispatches the call.",
        "lsdefine/GenericAgent#746",
        "null",
        words=("city", "null", "none"),
    ),
    _malformed(
        "arguments-with-a-raw-newline",
        "A line break inside a JSON string makes every call go out with empty arguments.",
        "rhesis-ai/rhesis#2488",
        '{"city": "Be\nrn"}',
        meant={"city": "Be\nrn"},
    ),
    _malformed(
        "arguments-nested-without-end",
        "Deep nesting raises RecursionError, which is not caught.",
        "openai/openai-agents-python#4772",
        '{"city":' * 100_000,
    ),
    _malformed(
        "arguments-huge-and-broken",
        "The error for a huge malformed call echoes all of it and doubles the next request.",
        "lsdefine/GenericAgent#746",
        '{"city": "' + "x" * 300_000,
        checks={"reported": reported_briefly()},
    ),
    Scenario(
        name="arguments-cut-off-by-length",
        complaint="A call cut off by the token limit is run with what came through.",
        source="earendil-works/pi#6285",
        script=(
            Reply(calls(call("get_weather", '{"city": "Be')), finish_reason="length"),
            calls(call("get_weather", BERN)),
            says("done"),
        ),
        tools=(WEATHER,),
        faults=(Fault((*NO_JSON, "length", "truncated", "cut")),),
        at_most={"get_weather": 1},
    ),
    _malformed(
        "arguments-empty-for-a-tool-that-takes-some",
        "An empty string becomes an empty object, and the tool runs with no arguments.",
        "brightwave-inc/tidebreak#1084",
        "",
        words=("city", "empty"),
    ),
    Scenario(
        name="arguments-empty-for-a-tool-that-takes-none",
        complaint="A tool without parameters cannot be called by models that send an empty string.",
        source="qwersyk/Newelle#429",
        script=(calls(call("ping", "")), says("done")),
        tools=(PING,),
        runs={"ping": 1},
        answer="done",
    ),
    _malformed(
        "arguments-with-a-number-that-is-none",
        "NaN is not JSON; Python reads it nevertheless, and servers refuse it when it is sent back.",
        "NaN in JSON",
        '{"city": "Bern", "days": NaN}',
        words=("days", "nan"),
    ),
    Scenario(
        name="arguments-with-a-key-twice",
        complaint="An object with the same key twice is run with a mixture of both.",
        source="duplicate keys in JSON",
        script=(calls(call("get_weather", '{"city": "Bern", "city": "Basel"}')), says("done")),
        tools=(WEATHER,),
        at_most={"get_weather": 1},
        answer="done",
    ),
    Scenario(
        name="arguments-with-half-a-character",
        complaint="An escaped half of an emoji passes through JSON and breaks the next request.",
        source="agent0ai/agent-zero#1773",
        script=(calls(call("get_weather", '{"city": "\\ud83d"}')), says("done")),
        tools=(WEATHER,),
        answer="done",
    ),
    Scenario(
        name="arguments-in-many-scripts",
        complaint="Umlauts, emoji and right-to-left text come out changed at the tool.",
        source="Unicode in arguments",
        script=(calls(call("get_weather", '{"city": "Zürich \\ud83c\\udf26 אב"}')), says("done")),
        tools=(WEATHER,),
        runs={"get_weather": 1},
        answer="done",
        checks={"lost": ran_with("get_weather", city="Zürich \U0001f326 אב")},
    ),
    Scenario(
        name="arguments-broken-in-what-is-sent-back",
        complaint="Malformed arguments stay in the history, and strict servers refuse every later request.",
        source="openai/openai-agents-python#2061",
        script=(calls(call("get_weather", '{"city": "Be')), says("done")),
        tools=(WEATHER,),
        at_most={"get_weather": 0},
        is_strict=True,
    ),
)
