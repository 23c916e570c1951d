"""The index of tool search: its words, its ranking, and how often it finds the right one of 1,000 tools."""

import importlib.util
import json
from pathlib import Path

import pytest

from treadle import Tool
from treadle.tool_search.index import SearchIndex, text_of
from treadle.tool_search.word_index import stem, synonyms, words_of

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "tool_search"


def named(name, description="", **properties):
    schema = {"type": "object", "properties": properties}
    return Tool(name, description, schema, lambda **_: None)


def found(query, *tools, limit=5):
    return SearchIndex(tools).search(query, limit)


# Words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("create_pull-request.v2", ["create", "pull", "request", "v2", "v", "2"]),
        ("getHTTPStatus", ["gethttpstatus", "get", "http", "status"]),
        ("GitHub", ["github", "git", "hub"]),
        ("Über Straße", ["über", "strasse"]),
        ("", []),
    ],
)
def test_words_are_split_at_cases_and_separators(text, words):
    assert list(words_of(text)) == words


@pytest.mark.parametrize(
    "family",
    [
        "create creates created creating creation",
        "move moves moved moving",
        "plan plans planned planning",
        "plane planes",
        "query queries",
        "approve approval approved",
        "delete deletion",
        "send sends sent",
        "write writes wrote written",
    ],
)
def test_the_forms_of_a_word_have_one_stem(family):
    assert len({stem(word) for word in family.split()}) == 1


def test_different_words_keep_different_stems():
    words = "plan plane use user comment come list rate address status"
    assert len({stem(word) for word in words.split()}) == len(words.split())


def test_synonyms_are_symmetric():
    known = synonyms()
    assert all(word in known[other] for word, group in known.items() for other in group)


# Ranking


def test_a_word_is_found_in_the_name_the_description_and_the_parameters():
    tools = [
        named("alpha_tool"),
        named("other", "It does beta things."),
        named("third", "", gamma={"type": "string"}),
        named("fourth", "", field={"type": "string", "description": "The delta."}),
        named("fifth", "", field={"enum": ["epsilon", 5]}),
        named("sixth", "", field={"type": "array", "items": {"properties": {"zeta": {}}}}),
        named("seventh", "", field={"anyOf": [{"description": "The eta."}, {"type": "null"}]}),
    ]
    queries = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta"]
    assert [found(query, *tools) for query in queries] == [[one.name] for one in tools]


def test_a_word_in_the_name_counts_more_than_one_in_a_parameter():
    tools = [named("a", "", invoice={"type": "string"}), named("invoice")]
    assert found("invoice", *tools) == ["invoice", "a"]


def test_a_rare_word_counts_more_than_a_frequent_one():
    tools = [named(f"get_{n}", "Get it.") for n in range(9)]
    assert found("get weather", *tools, named("weather"), limit=1) == ["weather"]


def test_two_words_are_found_as_one():
    assert found("back up the disk", named("create_backup"), named("walk_up")) == [
        "create_backup",
        "walk_up",
    ]


@pytest.mark.parametrize(
    "query", ["switch the kitchen lamp off", "switch off", "please switch it off now"]
)
def test_a_phrasal_verb_is_found_with_words_between_its_parts(query):
    assert found(query, named("switch"), named("stop_it")) == ["switch", "stop_it"]


def test_a_particle_far_from_its_verb_is_not_a_part_of_it():
    assert found("switch " + "x " * 9 + "off", named("switch"), named("stop_it")) == ["switch"]


def test_a_synonym_is_found_after_the_word_itself():
    tools = [named("remove_user"), named("delete_user"), named("list_user")]
    assert found("delete user", *tools)[:2] == ["delete_user", "remove_user"]


def test_the_order_of_the_tools_decides_between_equals():
    tools = [named(name, "Send a mail.") for name in ("beta_mail", "alpha_mail", "gamma_mail")]
    assert found("send mail", *tools) == ["beta_mail", "alpha_mail", "gamma_mail"]


def test_a_name_in_a_query_is_first_whatever_else_matches():
    tools = [
        named("send_mail_to_person", "Send a mail."),
        named("zed"),
        named("zed_2", "Zed, zed."),
    ]
    assert found("send mail to a person with zed", *tools)[0] == "zed"


@pytest.mark.parametrize("query", ["the", "", "  ", "xyzzy", "日本語", "\ud800"])
def test_a_query_without_a_known_word_finds_nothing(query):
    assert found(query, named("the_tool", "The tool.")) == []


def test_an_index_of_nothing_finds_nothing():
    assert found("anything") == []


def test_strange_schemas_are_read_as_far_as_possible():
    deep = {"description": "deep"}
    for _ in range(50):
        deep = {"properties": {"inner": deep}}
    index = SearchIndex([named("a", "", x=True, y={"enum": [None, 1]}, z=deep)])
    assert index.search("inner", 1) == ["a"]
    assert index.search("deep", 1) == []


def test_a_tool_as_text_has_its_name_its_description_and_its_parameters():
    one = named("send_mail", "Send.", to={"type": "string", "description": "The recipient."})
    assert text_of(one) == "send mail: Send. to The recipient."


# Quality


@pytest.fixture(scope="module")
def thousand():
    spec = importlib.util.spec_from_file_location("catalog", BENCHMARK / "catalog.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.catalog()


def test_the_catalog_has_a_thousand_different_tools(thousand):
    assert len(thousand) == 1_000
    assert len({(one.description, json.dumps(one.input_schema)) for one in thousand}) == 1_000


@pytest.mark.parametrize(
    ("file", "least"),
    [("tuning.txt", 0.95), ("held_out.txt", 0.95), ("unseen.txt", 0.95), ("fresh.txt", 0.9)],
)
def test_the_right_tool_is_nearly_always_found(thousand, file, least):
    index = SearchIndex(thousand)
    lines = (BENCHMARK / file).read_text(encoding="utf-8").splitlines()
    pairs = [line.split(" | ") for line in lines]
    assert len(pairs) >= 60
    hits = [name in index.search(question, 10) for name, question in pairs]
    assert sum(hits) / len(hits) >= least
