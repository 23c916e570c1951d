"""Models that embed texts, through OpenAI's SDK and a server that implements its embeddings."""

import asyncio
import json
from contextlib import closing

import pytest
from tests.providers.keep_alive import KeepAliveServer

from treadle import OptionError
from treadle.messages import NotAResponseError
from treadle.providers import Roles, embedder


@pytest.fixture
def server():
    with closing(KeepAliveServer()) as made:
        yield made


def embed(server, texts, **opts):
    return asyncio.run(embedder("openai:m", base_url=server.url, **opts)(texts))


def bodies(server):
    return [body for _, body in server.requests]


def test_each_text_has_its_vector_in_the_order_of_the_texts(server):
    """The server returns them in another one, with their indexes."""
    assert embed(server, ["a", "bb", "ccc"]) == [[1.0], [2.0], [3.0]]
    assert bodies(server) == [
        {"model": "m", "input": ["a", "bb", "ccc"], "encoding_format": "float"}
    ]


def test_no_texts_need_no_request(server):
    assert embed(server, []) == []
    assert server.requests == []


def test_texts_are_sent_in_batches(server):
    texts = ["x" * length for length in range(1, 6)]
    assert embed(server, texts, batch_size=2) == [[1.0], [2.0], [3.0], [4.0], [5.0]]
    assert [len(body["input"]) for body in bodies(server)] == [2, 2, 1]


def test_a_batch_is_within_the_limits_of_the_provider(server):
    """2,048 texts, and 300,000 tokens, which have at least a byte each; a longer text is sent by itself."""
    embed(server, ["x"] * 2050)
    embed(server, ["é" * 75_000, "x" * 150_000, "y", "z" * 400_000, "w"])
    assert [len(body["input"]) for body in bodies(server)] == [2048, 2, 2, 1, 1, 1]


def test_dimensions_are_sent_if_they_are_given(server):
    embed(server, ["a"], dimensions=256)
    assert bodies(server)[0]["dimensions"] == 256


@pytest.mark.parametrize(
    ("option", "kind"),
    [("dimensions", "an integer"), ("batch_size", "an integer"), ("timeout", "a number")],
)
@pytest.mark.parametrize("value", [0, "5"])
def test_a_number_that_is_not_above_zero_is_an_error(option, kind, value, server):
    with pytest.raises(OptionError, match=f"{option}: expected {kind} above 0, got {value!r}"):
        embed(server, ["a"], **{option: value})


def test_a_part_of_a_text_is_no_size_of_a_batch(server):
    with pytest.raises(OptionError, match=r"batch_size: expected an integer above 0, got 1\.5"):
        embed(server, ["a"], batch_size=1.5)


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        ("abc", "a list of texts, got str"),
        ({"a"}, "a list of texts, got set"),
        (["a", 1], "text, got int"),
    ],
)
def test_anything_but_a_list_of_texts_is_an_error(texts, what, server):
    with pytest.raises(OptionError, match=what):
        embed(server, texts)
    assert server.requests == []


@pytest.mark.parametrize(
    "data", [[], 5, None, [None], [{"index": 0}], [{"index": 0, "embedding": "a"}]]
)
def test_a_server_that_returns_too_few_vectors_is_an_error(data, server):
    server.answer = lambda path, body: (
        "application/json",
        json.dumps({"object": "list", "model": "m", "data": data}),
    )
    with pytest.raises(NotAResponseError, match="expected 1 vectors, got 0"):
        embed(server, ["a"])


def test_a_server_that_returns_a_page_is_an_error(server):
    server.answer = lambda path, body: ("text/html", "<!doctype html>")
    with pytest.raises(NotAResponseError, match="expected 1 vectors, got 0"):
        embed(server, ["a"])


def test_a_role_may_embed(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    roles = Roles(chat=print, embedding="openai:text-embedding-3-small")
    assert asyncio.run(roles.embed(["ab"])) == [[2.0]]
