"""`Roles`: which model plays which role, and which one stands in for a role without a model."""

import asyncio

import pytest

from treadle import Loop, OptionError
from treadle.providers import Roles
from treadle.providers.local import LocalModel


def chat(messages):
    return "chat"


def cheap(messages):
    return "cheap"


async def embed(texts):
    return [[float(len(text))] for text in texts]


def test_a_role_without_a_model_is_played_by_the_one_before():
    assert Roles(chat=chat).model("memory") is chat
    assert Roles(chat=chat, summary=cheap).model("memory") is cheap
    roles = Roles(chat=chat, memory=cheap)
    assert [roles.model(role) for role in ("chat", "summary", "memory")] == [chat, chat, cheap]


def test_a_model_of_a_role_drives_a_loop():
    roles = Roles(chat=chat, summary=cheap)
    assert Loop.run_sync("Hi", roles.model("summary")).unwrap().content == "cheap"


def test_a_name_is_opened_when_the_role_is_needed():
    assert isinstance(Roles(chat=chat, summary="local").model("summary"), LocalModel)


def test_texts_are_embedded():
    roles = Roles(chat=chat, embedding=embed)
    assert asyncio.run(roles.embed(["a", "bcd"])) == [[1.0], [3.0]]


def test_without_a_model_that_embeds_there_is_an_error():
    with pytest.raises(OptionError, match="no model was given for this role"):
        asyncio.run(Roles(chat=chat).embed(["a"]))


def test_a_provider_without_embeddings_is_an_error_that_names_the_others():
    roles = Roles(chat=chat, embedding="local")
    with pytest.raises(OptionError, match=r"has no models that embed; these have: .*openai"):
        asyncio.run(roles.embed(["a"]))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"chat": 5}, "a callable"),
        ({"chat": "no:x"}, "'no:x'"),
        ({"chat": chat, "embedding": 5}, "embedding: expected a callable .*, got int"),
        ({"chat": chat, "embedding": "no:x"}, "'no:x'"),
    ],
)
def test_a_value_that_is_no_model_is_an_error(given, text):
    with pytest.raises(OptionError, match=text):
        Roles(**given)


def test_an_unknown_role_is_an_error():
    with pytest.raises(OptionError, match="'chat', 'summary' or 'memory', got 'embedding'"):
        Roles(chat=chat).model("embedding")
