"""The objects of MCP's SDK: its ``Tool`` among the tools of a run, and its ``CallToolResult`` as a result."""

from typing import Any

import pytest
from mcp import types
from pydantic import BaseModel

from treadle import CircuitBroken, Loop, ToolDefinitionError, ToolFinished, tool
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import as_tool

PICTURE = types.ImageContent(type="image", data="iVBORw0KGgo=", mimeType="image/png")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def written(text):
    return types.TextContent(type="text", text=text)


def search(**facts):
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    return types.Tool(name="search", inputSchema=schema, **facts)


def returned(way, value, **options):
    """The result of a call, and the content of its message."""
    seen = []
    loop = Loop(tools=[search()], resolve_tool=lambda _: value, on_event=seen.append, **options)
    messages = way.run(loop, ScriptedLLM(calls(call("search", "c1", q="x")), "Done.")).messages
    (result,) = (event.result for event in seen if isinstance(event, ToolFinished))
    return result, messages[2]["content"]


class TestTools:
    """A ``Tool`` of the SDK is a tool."""

    def test_it_has_the_name_the_texts_and_the_schema_and_its_hints_are_defaults(self):
        hints = types.ToolAnnotations(destructiveHint=True, idempotentHint=True)
        made = as_tool(search(title="Web search", description="Search.", annotations=hints))
        assert (made.name, made.description) == ("search", "Search.")
        assert made.input_schema["required"] == ["q"]
        assert (made.parallel_safe, made.idempotent) == (False, True)
        assert made.annotations["title"] == "Web search"
        assert as_tool(search(title="Web search")).description == "Web search"

    def test_options_may_be_set(self):
        assert tool(search(), timeout=5).timeout == 5

    def test_an_object_with_the_attributes_of_version_1_is_one(self):
        class OldTool(BaseModel):
            name: str
            description: str
            inputSchema: dict[str, Any]
            annotations: Any = None

        given = OldTool(name="search", description="Search.", inputSchema={"type": "object"})
        assert as_tool(given).description == "Search."

    def test_the_model_is_offered_it_and_the_resolver_runs_it(self, way):
        model = ScriptedLLM(calls(call("search", "c1", q="x")), "Done.")
        loop = Loop(tools=[search()], resolve_tool=lambda one: one.input["q"] * 2)
        messages = way.run(loop, model).messages
        assert messages[2]["content"] == "xx"
        assert model.sent[0].opts["tools"][0]["function"]["name"] == "search"

    def test_without_a_resolver_the_error_says_what_is_missing(self):
        with pytest.raises(ToolDefinitionError, match=r"'search' has no function, .*resolve_tool"):
            Loop.run_sync("Hi", ScriptedLLM(), tools=[search()])

    def test_an_error_about_another_class_of_that_name_names_its_module(self):
        class Tool:
            pass

        with pytest.raises(ToolDefinitionError, match=r"got tests\.loop\.test_mcp\..*Tool"):
            as_tool(Tool())


class TestResults:
    """A ``CallToolResult`` is a result, whoever returned it."""

    def test_texts_are_the_text(self, way):
        given = types.CallToolResult(content=[written("a"), written("b")])
        result, content = returned(way, given)
        assert (content, result.is_error, result.parts) == ("a\nb", False, None)

    def test_an_error_is_an_error_that_is_not_tried_again(self, way):
        asked = []

        @tool(retries=3)
        def find():
            """Find."""
            asked.append(1)
            return types.CallToolResult(content=[written("no access")], isError=True)

        seen = []
        model = ScriptedLLM(*(calls(call("find", f"c{n}")) for n in range(3)))
        result = way.run(Loop(tools=[find], on_event=seen.append), model)
        finished = [event.result for event in seen if isinstance(event, ToolFinished)]
        assert {(one.content, one.is_error) for one in finished} == {("Error: no access", True)}
        assert isinstance(result.reason, CircuitBroken)
        assert len(asked) == len(finished)

    def test_media_are_parts(self, way):
        sound = types.AudioContent(type="audio", data="UklGRg==", mimeType="audio/mpeg")
        blob = types.BlobResourceContents(
            uri="file:///a/b.pdf", mimeType="application/pdf", blob="JVBERi0="
        )
        given = types.CallToolResult(
            content=[PICTURE, sound, types.EmbeddedResource(type="resource", resource=blob)]
        )
        result, content = returned(way, given)
        assert content == [
            IMAGE,
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}},
            {
                "type": "file",
                "file": {
                    "filename": "b.pdf",
                    "file_data": "data:application/pdf;base64,JVBERi0=",
                },
            },
        ]
        assert result.content.startswith("[image/png, 8 bytes, ")

    def test_resources_and_links_are_text_with_their_address(self, way):
        inside = types.TextResourceContents(uri="file:///a.txt", text="So.")
        link = types.ResourceLink(
            type="resource_link", name="a", uri="https://example.com/a", description="More."
        )
        given = types.CallToolResult(
            content=[types.EmbeddedResource(type="resource", resource=inside), link]
        )
        _, content = returned(way, given)
        assert content == (
            "[resource file:///a.txt]\nSo.\n[resource a: https://example.com/a]\nMore."
        )

    def test_the_structured_content_is_used_where_there_is_no_other(self, way):
        given = types.CallToolResult(content=[], structuredContent={"n": 1})
        assert returned(way, given)[1] == '{"n":1}'
        given = types.CallToolResult(content=[written("one")], structuredContent={"n": 1})
        assert returned(way, given)[1] == "one"
        assert returned(way, types.CallToolResult(content=[]))[1] == "(no output)"

    def test_its_json_form_is_read_likewise(self, way):
        given = types.CallToolResult(content=[written("no"), PICTURE], isError=True)
        dumped = given.model_dump(mode="json", by_alias=True, exclude_none=True)
        result, content = returned(way, dumped)
        assert (result.is_error, content[1]) == (True, IMAGE)

    @pytest.mark.parametrize(
        "value",
        [
            {"content": [{"type": "text", "text": "a"}]},
            {"content": "a", "isError": True},
            {"content": [{"type": "row", "text": "a"}], "isError": True},
            {"content": [{"type": "text", "text": "a"}], "isError": True, "page": 2},
            {"isError": True},
        ],
    )
    def test_other_json_is_json(self, way, value):
        result, content = returned(way, value)
        assert content.startswith("{")
        assert not result.is_error

    def test_a_block_without_its_fields_is_shown_as_json(self, way):
        given = {"content": [{"type": "image", "url": "x"}], "isError": False}
        assert returned(way, given)[1] == '{"type":"image","url":"x"}'
