"""`Hedge`: which of two requests is used, and what becomes of the other one."""

import threading
import time

import anyio
import pytest

from treadle import FirstChunk, Loop, TextDelta, Usage
from treadle.errors import OptionError
from treadle.messages import Chunk
from treadle.providers.middleware import ConcurrencyLimit, Hedge
from treadle.providers.middleware.hedge import LostRaceError, _Race

from .flaky import BusyError, InvalidError, Named


def run(way, first, hedge, **options):
    options = {"max_retries": 0, "retry_delay": 0, **options}
    return way.run("Hi", first, model_middleware=[hedge], **options)


def test_a_quick_response_is_the_only_request(way):
    first, second = Named("a", usage=Usage(2, 1)), Named("b")
    observed = run(way, first, Hedge(30, model=second))
    assert (observed.result.unwrap().text, second.sent) == ("from a", [])
    assert observed.result.usage == Usage(2, 1)


def test_the_second_is_used_if_it_is_faster(way):
    first, second = Named("a", seconds=30), Named("b", usage=Usage(2, 1))
    started = time.monotonic()
    observed = run(way, first, Hedge(0.02, model=second))
    assert time.monotonic() - started < 10
    response = observed.result.unwrap()
    assert (response.text, response.model) == ("from b", "b")
    assert (first.cancelled, len(first.sent), len(second.sent)) == (1, 1, 1)
    assert second.sent == first.sent
    assert observed.result.usage == Usage(2, 1, is_lower_bound=True)


def test_the_first_is_used_if_it_is_faster_after_all(way):
    first, second = Named("a", seconds=0.06), Named("b", seconds=30)
    observed = run(way, first, Hedge(0.02, model=second))
    assert (observed.result.unwrap().text, second.cancelled) == ("from a", 1)
    assert observed.result.usage.is_lower_bound


def test_by_default_the_same_model_is_asked_again(driven):
    first = Named("a", [30.0, "slow"], "fast")
    assert run(driven, first, Hedge(0.02)).result.unwrap().text == "fast"
    assert len(first.sent) == 2
    assert first.closed == 1


def test_the_first_piece_of_a_stream_decides(way):
    """The second begins before it ends, and the first one is never heard of again."""
    first = Named("a", [5.0, "a1", "a2"])
    second = Named("b", ["b1", 0.1, "b2"])
    observed = run(way, first, Hedge(0.02, model=second))
    assert observed.result.unwrap().text == "b1b2"
    texts = [event.text for event in observed.events if isinstance(event, TextDelta)]
    assert texts == ["b1", "b2"]
    assert len([event for event in observed.events if isinstance(event, FirstChunk)]) == 1
    assert (first.closed, second.closed) == (1, 1)


def test_after_its_first_piece_the_first_is_not_hedged(way):
    first, second = Named("a", ["a1", 0.5, "a2"]), Named("b")
    assert run(way, first, Hedge(0.3, model=second)).result.unwrap().text == "a1a2"
    assert second.sent == []


def test_it_decides_without_listeners_too():
    first, second = Named("a", [5.0, "a1"]), Named("b", ["b1", 0.1, "b2"])
    result = Loop.run_sync("Hi", first, model_middleware=[Hedge(0.02, model=second)])
    assert result.unwrap().text == "b1b2"


def test_an_early_failure_is_retried_by_ask_model(way):
    first, second = Named("a", BusyError()), Named("b")
    observed = run(way, first, Hedge(30, model=second), max_retries=1)
    assert observed.result.unwrap().text == "from a"
    assert (len(first.sent), second.sent) == (2, [])


def test_a_late_failure_leaves_the_other_to_respond(driven):
    for times in ((0.3, 0.5), (0.6, 0.02)):
        models = Named("a", seconds=times[0]), Named("b", seconds=times[1])
        models[times[0] > times[1]].script[:] = [BusyError()]
        failing = models[times[0] > times[1]]
        observed = run(driven, models[0], Hedge(0.02, model=models[1]))
        other = models[failing is models[0]]
        assert observed.result.unwrap().text == f"from {other.model}"


def test_if_both_fail_the_error_is_that_of_the_first(driven):
    first = Named("a", InvalidError("first"), seconds=0.3)
    second = Named("b", BusyError("second"))
    assert run(driven, first, Hedge(0.01, model=second)).result.reason.message == "first"


def test_a_winner_that_breaks_off_after_text_is_not_requested_again(driven):
    first, second = Named("a", seconds=30), Named("b", ["b1", ConnectionResetError("reset")])
    observed = run(driven, first, Hedge(0.02, model=second), max_retries=3)
    assert observed.result.stop_reason == "llm_error"
    assert observed.result.messages[-1] == {"role": "assistant", "content": "b1"}
    assert len(first.sent) == len(second.sent) == 1


def test_a_second_that_breaks_off_after_the_first_failed_is_not_requested_again_either(driven):
    first = Named("a", BusyError(), seconds=0.3)
    second = Named("b", [0.6, "b1", ConnectionResetError("reset")])
    observed = run(driven, first, Hedge(0.02, model=second), max_retries=3)
    assert observed.result.reason.message.startswith("reset; listeners had received 2 characters")
    assert len(first.sent) == len(second.sent) == 1


def test_a_piece_of_the_loser_is_not_read():
    """Another thread may read it before the request is cancelled."""
    race = _Race()
    events = race._claiming(0, None)
    assert race.claim(1)
    with pytest.raises(LostRaceError):
        events()
    assert race._claiming(1, None)()(Chunk("b"), None) == ()


def test_sync_models_are_hedged_in_threads():
    stop, asked = threading.Event(), []

    def slow(messages):
        asked.append(threading.current_thread().name)
        if len(asked) == 1:
            stop.wait(10)
            return "slow"
        stop.set()
        return "fast"

    assert Loop.run_sync("Hi", slow, model_middleware=[Hedge(0.02)]).unwrap().text == "fast"
    assert len(asked) == 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("seconds", [0.05, 0.6])
def test_a_cancelled_run_cancels_both(backend, seconds):
    """Before and after the second request."""
    model, limit = Named("a", seconds=30), ConcurrencyLimit(2)

    async def main():
        with anyio.move_on_after(seconds):
            await Loop.run("Hi", model, model_middleware=[Hedge(0.3), limit])

    anyio.run(main, backend=backend)
    assert model.now == 0
    assert model.cancelled == len(model.sent) == (1 if seconds < 0.3 else 2)
    assert limit._turns._queues == {}


def test_the_deadline_ends_both_and_keeps_the_text_of_the_winner(way):
    first, second = Named("a", seconds=30), Named("b", ["b1", 30.0, "b2"])
    observed = run(way, first, Hedge(0.02, model=second), max_seconds=0.4)
    assert observed.result.stop_reason == "deadline_exceeded"
    assert observed.result.messages[-1] == {"role": "assistant", "content": "b1"}
    assert (first.now, first.closed + first.cancelled, second.closed) == (0, 1, 1)


def test_a_second_model_that_cannot_be_opened_leaves_the_first(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    first = Named("a", seconds=0.06)
    result = Loop.run_sync("Hi", first, model_middleware=[Hedge(0.01, model="openai:gpt-5-mini")])
    assert result.unwrap().text == "from a"


@pytest.mark.parametrize("given", [0, -1, "1", float("nan")])
def test_wrong_seconds_are_refused(given):
    with pytest.raises(OptionError, match="Hedge: after: expected seconds above 0"):
        Hedge(given)
    with pytest.raises(OptionError, match="expected a callable"):
        Hedge(1, model=5)
