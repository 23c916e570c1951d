"""What a run adds to the history of its workflow, and what happens if its conversation is lost."""

import json
import sys
from pathlib import Path

import pytest

from treadle import Loop, approve, tool
from treadle.durable.temporal import SQLiteBlobStore
from treadle.durable.temporal.payloads import INLINE_BYTES
from treadle.testing import check_history

from . import running

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
import temporal_history as bench


@pytest.fixture
def store(tmp_path):
    return SQLiteBlobStore(tmp_path / "store.db")


def reading(pages, size, answer="That is all.", **options):
    """A loop that reads pages one after another, each of so many characters."""

    @tool(read_only=True, **options)
    def read(page: int) -> str:
        """Read a page."""
        return "x" * size

    def model(messages):
        page = sum(message["role"] == "tool" for message in messages)
        if page == pages:
            return answer
        function = {"name": "read", "arguments": json.dumps({"page": page})}
        call = {"id": f"call_{page}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    return Loop(tools=[read], llm_send_fn=model, name="agent", max_iterations=pages + 1)


async def result_of(client, loop, store, messages="Read all pages.", **options):
    """The result of a run, and the events of its history."""
    async with running.serving(client, loop, store=store, **options) as queue:
        run = await running.started(client, loop, queue, messages, store=store)
        result = await run.result()
    events = [event async for history in bench.histories(client, run.run_id) for event in history]
    return result, events


def requests_in(events):
    """The JSON texts of the requests to models that a history has."""
    for event in events:
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_type.name == "treadle.chat":
            yield scheduled.input.payloads[0].data


class TestGrowth:
    def test_an_iteration_adds_what_is_new(self, temporal_server, store, tmp_path):
        async def measured(client):
            return await bench.measured(client, tmp_path, "growth", 30, 30_000, by_reference=True)

        made = running.run(temporal_server, measured)
        assert max(made.sizes[1:]) < 1.05 * min(made.sizes[1:])  # the first has no page yet
        assert sum(made.sizes) < sum(bench.whole_sizes(made)) / 5

    def test_without_a_store_each_request_has_all_messages(self, temporal_server, tmp_path):
        async def measured(client):
            return await bench.measured(client, tmp_path, "whole", 20, 20_000, by_reference=False)

        made = running.run(temporal_server, measured)
        assert made.sizes[-1] > 3 * made.sizes[0]

    def test_a_new_history_goes_on_with_the_reference(self, temporal_server, store):
        loop = reading(12, 8_000)
        result, events = running.run(
            temporal_server, lambda client: result_of(client, loop, store, max_events=30)
        )
        assert (
            sum(one.HasField("workflow_execution_started_event_attributes") for one in events) > 1
        )
        check_history(result.messages)
        assert len(result.messages) == 2 + 2 * 12
        assert max(map(len, requests_in(events))) < INLINE_BYTES + 1_000

    def test_after_an_approval_only_what_is_new_is_sent(self, temporal_server, store):
        loop = reading(3, 5_000, requires_approval=True)

        async def decided(client):
            async with running.serving(client, loop, store=store) as queue:
                run = await running.started(client, loop, queue, store=store)
                for _ in range(3):
                    state = await running.until(run, lambda state: state["pending"])
                    await run.decide({one["id"]: approve for one in state["pending"]})
                result = await run.result()
            return result, [one async for one in bench.histories(client, run.run_id)]

        result, histories = running.run(temporal_server, decided)
        assert len(result.messages) == 2 + 2 * 3
        sizes = [len(one) for history in histories for one in requests_in(history)]
        assert max(sizes) < 2 * 5_000


class TestLargeValues:
    def test_messages_may_be_larger_than_temporal_allows(self, temporal_server, store):
        question, answer = "x" * 3_000_000, "y" * 3_000_000
        loop = reading(2, 40_000, answer)
        result, events = running.run(
            temporal_server, lambda client: result_of(client, loop, store, question)
        )
        sizes = [len(message["content"] or "") for message in result.messages]
        assert sizes == [3_000_000, 0, 40_000, 0, 40_000, 3_000_000]
        assert sum(event.ByteSize() for event in events) < 100_000


class TestLostConversation:
    def test_it_is_sent_as_a_whole(self, temporal_server, store, tmp_path, caplog):
        loop = reading(6, 100)
        model = loop.settings.llm_send_fn

        def losing(messages):
            if len(messages) == 7:
                for path in tmp_path.glob("store.db*"):
                    path.unlink()
            return model(messages)

        loop = loop.with_options(llm_send_fn=losing)

        async def forgetful(client):
            from treadle.durable.temporal import host

            class Forgetful(host.Conversations):
                def __init__(self, store):
                    super().__init__(store, cache_bytes=0)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(host, "Conversations", Forgetful)
                return await result_of(client, loop, store)

        result, events = running.run(temporal_server, forgetful)
        assert len(result.messages) == 2 + 2 * 6
        bases = [one["delta"]["base"] for one in map(json.loads, requests_in(events))]
        assert [base is None for base in bases] == [True, *[False] * 4, True, *[False] * 2]
        assert "is sent again" in caplog.text
