"""`ResponseCache` and its stores."""

import json
import logging
import os
import sqlite3
import stat
import sys

import pytest
from tests.programs import run_program

from treadle import Limits, Loop, ModelResponded, Response, TextDelta, Usage, tool
from treadle.databases.sqlite import UnexpectedContentsError
from treadle.errors import OptionError
from treadle.providers.middleware import InMemoryCache, ResponseCache, SQLiteCache
from treadle.testing import call, calls

from .conftest import check_replay
from .flaky import BusyError, Named


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return InMemoryCache() if request.param == "memory" else SQLiteCache(tmp_path / "cache.db")


def test_the_same_request_is_answered_from_the_store(way, store):
    @tool
    def look(n: int) -> str:
        """Look."""
        return f"seen {n}"

    message = calls(call("look", "c1", n=1), text="Let me look.")
    message["extra_key"] = {"a": [1]}
    usage = Usage(100, 10, cost=0.5)
    script = [
        {"choices": [{"message": message}], "usage": {"prompt_tokens": 9, "completion_tokens": 1}},
        ["Do", "ne."],
    ]
    model = Named("m", *script, usage=usage)
    options = {"tools": [look], "model_middleware": [ResponseCache(store)]}
    first = way.run("Hi", model, **options)
    second = way.run("Hi", model, **options)
    assert len(model.sent) == 2
    assert second.result.messages == first.result.messages
    assert first.result.unwrap() == Response("Done.")
    assert second.result.unwrap() == Response("Done.", usage=Usage(cost=0.0))
    responses = [e.response for e in second.events if isinstance(e, ModelResponded)]
    assert [one.is_cached for one in responses] == [True, True]
    assert not any(e.response.is_cached for e in first.events if isinstance(e, ModelResponded))
    assert not [event for event in second.events if isinstance(event, TextDelta)]
    assert second.result.usage == Usage(cost=0.0)


def test_a_cached_response_costs_nothing_and_is_measured():
    cache, model = ResponseCache(), Named("m", usage=Usage(60, 40, cost=2.0))
    options = {
        "max_total_tokens": 100,
        "max_cost": 2.0,
        "limits": Limits(cost_of=lambda response: 1 / 0),
    }
    for cost in (2.0, 0.0, 0.0):
        result = Loop.run_sync("Hi", model, model_middleware=[cache], **options)
        assert (result.unwrap().text, result.usage.cost) == ("from m", cost)
    assert len(model.sent) == 1


def answered(model, *middleware, text="Hi", **options):
    return Loop.run_sync(text, model, model_middleware=middleware, **options)


def test_every_part_of_a_request_counts():
    @tool
    def look() -> str:
        return ""

    cache = ResponseCache()
    variants = [
        {},
        {"text": "Ho"},
        {"tools": [look]},
        {"instructions": "Be brief."},
        {"llm_opts": {"temperature": 0}},
        {"llm_opts": {"temperature": 1}},
    ]
    model = Named("m")
    for _ in range(2):
        for options in variants:
            answered(model, cache, **options)
    assert len(model.sent) == len(variants)
    others = [Named("n"), Named("m", provider="q"), Named("m")]
    others[2].endpoint_url = "http://other"
    for other in others:
        assert not answered(other, cache).unwrap().is_cached
    answered(model, ResponseCache(cache._store, namespace="x"))
    assert len(model.sent) == len(variants) + 1
    assert answered(Named("m"), cache).unwrap().is_cached


def test_functions_are_told_apart_by_their_names():
    cache = ResponseCache()

    def one(messages):
        return "one"

    def two(messages):
        return "two"

    assert answered(one, cache).unwrap().text == "one"
    assert answered(two, cache).unwrap().text == "two"
    assert answered(one, cache).unwrap().is_cached


@pytest.mark.parametrize(
    "answer",
    [
        Response("", refusal="No."),
        Response("cut o", finish_reason="length"),
        Response("cut o", finish_reason="content_filter"),
        Response("odd", extra={"value": object()}),
    ],
    ids=["refusal", "length", "filter", "no JSON"],
)
def test_these_are_not_stored(answer):
    cache, model = ResponseCache(), Named("m", answer, answer)
    answered(model, cache)
    answered(model, cache)
    assert len(model.sent) == 2


def test_blank_answers_and_errors_are_not_stored():
    cache, model = ResponseCache(), Named("m", Response("  "), "Nudged.", BusyError(), "Here.")
    assert answered(model, cache, retry_delay=0).unwrap().text == "Nudged."
    assert answered(model, cache, retry_delay=0).unwrap().text == "Here."


def test_a_request_that_is_no_json_is_not_cached():
    cache, model = ResponseCache(), Named("m")
    for _ in range(2):
        answered(model, cache, llm_opts={"response_format": object()})
    assert len(model.sent) == 2


def test_a_store_may_be_async(driven):
    class Store:
        def __init__(self):
            self.kept = {}

        async def get(self, key):
            return self.kept.get(key)

        async def put(self, key, text):
            self.kept[key] = text

    cache, model = ResponseCache(Store()), Named("m")
    for is_cached in (False, True):
        result = driven.run("Hi", model, model_middleware=[cache]).result
        assert result.unwrap().is_cached == is_cached
    [(key, text)] = cache._store.kept.items()
    assert len(key) == 64
    assert json.loads(text)["content"] == "from m"


@pytest.mark.parametrize("kept", ["{", "[]", "5", '{"content": 5}', b"\xff"])
def test_a_text_that_is_no_response_is_ignored(kept, caplog):
    class Store(InMemoryCache):
        def get(self, key):
            return kept

    assert answered(Named("m"), ResponseCache(Store())).unwrap().text == "from m"
    assert "the cache has no response" in caplog.text


def test_a_replay_of_a_cached_response_needs_the_effects_alone(driven):
    cache, model = ResponseCache(), Named("m")
    for _ in range(2):
        recorded = check_replay(driven, "Go", model, lambda: {"model_middleware": [cache]})
    assert recorded.result.unwrap().is_cached


class TestMemory:
    def test_the_one_that_was_not_used_longest_is_removed(self):
        cache = InMemoryCache(2)
        cache.put("a", "1")
        cache.put("b", "2")
        assert cache.get("a") == "1"
        cache.put("c", "3")
        assert [cache.get(key) for key in "abc"] == ["1", None, "3"]

    def test_it_needs_room(self):
        with pytest.raises(OptionError, match="max_entries: expected at least 1, got 0"):
            InMemoryCache(0)


class TestSQLite:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "cache.db"

    def test_another_object_and_another_process_have_it(self, path):
        SQLiteCache(path).put("a", "é")
        assert SQLiteCache(path).get("a") == "é"
        code = (
            "import sys; from treadle.providers.middleware import SQLiteCache; c = SQLiteCache(sys.argv[1]); "
            "c.put('b', '2'); print(len(c.get('a')))"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = run_program([sys.executable, "-c", code, path], check=True, env=environment)
        assert done.stdout == "1\n"
        assert SQLiteCache(path).get("b") == "2"

    def test_only_its_owner_can_read_it(self, path):
        SQLiteCache(path).put("a", "1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_nothing_is_created_until_something_is_stored(self, path):
        assert SQLiteCache(path).get("a") is None
        assert not path.exists()

    def test_the_oldest_are_removed(self, path):
        cache = SQLiteCache(path, max_entries=2)
        for key in "abcb":
            cache.put(key, key)
        assert [cache.get(key) for key in "abc"] == [None, "b", "c"]

    def test_an_old_response_is_not_used(self, path):
        cache = SQLiteCache(path, max_age=60)
        cache.put("a", "1")
        assert cache.get("a") == "1"
        with sqlite3.connect(path) as db:
            db.execute("UPDATE responses SET stored_at = stored_at - 61")
        db.close()
        assert cache.get("a") is None
        assert SQLiteCache(path).get("a") == "1"

    def test_a_file_that_is_no_database_does_not_stop_a_run(self, driven, path, caplog):
        path.write_bytes(b"This is no database. " * 100)
        model, cache = Named("m"), ResponseCache(SQLiteCache(path))
        for _ in range(2):
            result = driven.run("Hi", model, model_middleware=[cache]).result
            assert result.unwrap().text == "from m"
        assert path.read_bytes().startswith(b"This is no database.")
        assert "file is not a database" in caplog.text
        assert len(model.sent) == 2

    def test_a_path_that_cannot_be_written_does_not_stop_a_run(self, tmp_path, caplog):
        cache = ResponseCache(SQLiteCache(tmp_path / "missing" / "cache.db"))
        assert answered(Named("m"), cache).unwrap().text == "from m"
        assert [record.levelno for record in caplog.records] == [logging.WARNING]

    def test_a_file_of_another_version_or_program_is_left_alone(self, path):
        SQLiteCache(path).put("a", "1")
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 7")
        db.close()
        cache = SQLiteCache(path)
        for act in (lambda: cache.get("a"), lambda: cache.put("a", "2")):
            with pytest.raises(
                UnexpectedContentsError, match="expected a response cache of version 1"
            ):
                act()
        assert answered(Named("m"), ResponseCache(cache)).unwrap().text == "from m"
        path.unlink()
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE theirs (a TEXT)")
        db.close()
        with pytest.raises(UnexpectedContentsError, match="found another program's file"):
            cache.put("a", "2")

    @pytest.mark.parametrize(
        ("args", "options"),
        [
            (("",), {}),
            ((":memory:",), {}),
            ((5,), {}),
            (("a",), {"max_entries": 0}),
            (("a",), {"max_age": 0}),
        ],
    )
    def test_wrong_options_are_refused(self, args, options):
        with pytest.raises(OptionError, match="SQLiteCache: "):
            SQLiteCache(*args, **options)
