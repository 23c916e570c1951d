"""The service of docs/guide-fastapi.md over real HTTP: streams, clients that come again or leave, decisions."""

import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.event_samples import KINDS, instances_of

from treadle import Loop, default_stages, event_from_json, stage, tool
from treadle.effects import Emit
from treadle.testing import ScriptedLLM, call, calls, check_history

from .pasted import import_page
from .served import Said, Served, wait_until

SECRET = "sk-secret"  # noqa: S105 - it is made up


@pytest.fixture
def guide(tmp_path, monkeypatch):
    """The page, pasted into a file and imported."""
    return import_page("guide-fastapi.md", tmp_path, monkeypatch)


@pytest.fixture
def serve(guide):
    """Makes the service of the page with another loop and other policies; runs it on a port."""

    def make(model, *, show=None, keep=60, leave=None, size=5_000, most=100, **options):
        runs = guide.Runs(
            Loop(llm_send_fn=model, **options),
            show=show or guide.public,
            keep_seconds=keep,
            leave_seconds=leave,
            log_size=size,
            max_runs=most,
        )
        return Served(guide.create_app(runs))

    return make


@tool
def look_up(name: str) -> str:
    """Look up a customer."""
    return f"{name} is 42, the key is {SECRET}"


@tool(requires_approval=True)
def pay(name: str) -> str:
    """Pay a customer."""
    return f"paid {name}"


def kinds(seen):
    return [data["type"] for _, data in seen]


def text_of(seen):
    return "".join(data["text"] for _, data in seen if data["type"] == "text_delta")


def numbers(seen):
    return [number for number, _ in seen]


# Streams


def test_a_client_sees_the_text_as_it_arrives_the_calls_and_the_result(serve):
    answer = Said()

    def model(messages):
        is_over = messages[-1]["role"] == "tool"
        return answer(messages) if is_over else calls(call("look_up", "c1", name="Ada"))

    with serve(model, tools=[look_up]) as service:
        run = service.ask("How old is Ada?")
        with service.events(run) as stream:
            seen = [next(stream) for _ in range(4)]
            answer.say("Ada ")
            seen.append(next(stream))  # while the model still speaks
            answer.say("is 42.", Said.END)
            seen += stream
        assert service.status(run) == "answered"
    assert kinds(seen) == [
        *("run_started", "model_responded", "tool_started", "tool_finished"),
        *("text_delta", "text_delta", "model_responded", "run_finished"),
    ]
    assert seen[2][1]["call"] == {"id": "c1", "name": "look_up", "arguments": '{"name": "Ada"}'}
    assert seen[-1][1]["result"] == {"text": "Ada is 42.", "output": "Ada is 42.", "pending": []}
    assert numbers(seen) == sorted(set(numbers(seen))) == [data["seq"] for _, data in seen]


def test_an_answer_is_its_text_alone(serve):
    model = ScriptedLLM(calls(call("look_up", name="Ada")), ["Ada ", "is ", "42."])
    with serve(model, tools=[look_up]) as service:
        answer = service.http.get("/answer", params={"question": "How old is Ada?"})
    assert (answer.status_code, answer.text) == (200, "Ada is 42.")


def test_an_answer_whose_client_leaves_is_cancelled(serve):
    model, ends = Said(), []
    model.say("Ada ", "is ")  # and the model says no more
    with serve(model, on_complete=ends.append) as service:
        answer = service.http.stream("GET", "/answer", params={"question": "How old is Ada?"})
        with answer as stream:
            assert next(stream.iter_text()).startswith("Ada ")
        wait_until(lambda: ends)
    assert [end.stop_reason for end in ends] == ["cancelled"]


def test_a_client_that_reconnects_by_number_receives_exactly_what_it_missed(serve):
    model = Said()
    with serve(model) as service:
        run = service.ask()
        with service.events(run) as stream:
            model.say("One ", "two ")
            first = [next(stream) for _ in range(3)]
            service.cut()
            with pytest.raises(httpx.TransportError):
                next(stream)
        model.say("three ", "four.", Said.END)  # it is missed by this client
        rest = service.all_events(run, after=first[-1][0])
        assert service.all_events(run) == first + rest
    assert text_of(first) == "One two "
    assert text_of(rest) == "three four."
    assert kinds(rest)[-1] == "run_finished"


def test_several_clients_of_a_run_see_the_same_events_whenever_they_come(serve):
    model = Said()
    with serve(model) as service:
        run = service.ask()
        with service.events(run) as early, service.events(run) as other:
            model.say("a", "b")
            seen = [[next(stream) for _ in range(3)] for stream in (early, other)]
            with service.events(run) as late:
                model.say("c", Said.END)
                seen = [[*seen[0], *early], [*seen[1], *other], [*late]]
        seen.append(service.all_events(run))  # after the end
    assert seen[0] == seen[1] == seen[2] == seen[3]
    assert text_of(seen[0]) == "abc"


def test_the_events_of_a_run_that_is_over_are_not_asked_for_again(serve):
    with serve(Said(["Done."])) as service:
        run = service.ask()
        last = service.all_events(run)[-1][0]
        again = service.http.get(f"{run}/events", headers={"Last-Event-ID": str(last)})
    assert again.status_code == 204  # by the HTML standard, what stops an EventSource


def test_a_client_too_far_behind_is_told_that_events_were_lost(serve):
    pieces = [f"{number} " for number in range(50)]
    with serve(Said(pieces), size=10) as service:
        run = service.ask()
        wait_until(lambda: service.status(run) == "answered")
        seen = service.all_events(run, after=2)
    assert kinds(seen)[0] == "events_lost"
    assert 10 <= len(seen) <= 21
    [whole] = [data["response"]["content"] for _, data in seen if data["type"] == "model_responded"]
    assert whole == "".join(pieces)  # so nothing is missing in the end


def test_a_retry_tells_the_client_that_the_pieces_are_void(serve):
    model = Said(["Wro", ConnectionError("cut")], ["Right."])
    with serve(model, retry_delay=0.01) as service:
        seen = service.all_events(service.ask())
    shown = [data.get("text", data["type"]) for _, data in seen]
    assert shown[1:4] == ["Wro", "model_retried", "Right."]


# Clients that leave


def test_a_run_goes_on_while_no_client_is_there(serve):
    model = Said()
    with serve(model) as service:
        run = service.ask()
        with service.events(run) as stream:
            next(stream)
        wait_until(lambda: service.http.get(run).json()["viewers"] == 0)
        model.say("Still ", "here.", Said.END)
        assert text_of(service.all_events(run)) == "Still here."


def test_a_policy_ends_a_run_some_time_after_its_last_client_left(serve):
    with serve(Said(), leave=0.2) as service:
        run = service.ask()
        with service.events(run) as stream:
            next(stream)
        wait_until(lambda: service.status(run) == "cancelled")
        assert service.all_events(run)[-1][1]["stop_reason"] == "cancelled"


def test_that_policy_spares_a_run_with_a_client(serve):
    model = Said()
    with serve(model, leave=0.2) as service:
        lonely, watched = service.ask(), service.ask()
        with service.events(watched) as stream:
            next(stream)
            wait_until(lambda: service.status(lonely) == "cancelled")  # nobody ever came
            assert service.status(watched) == "running"


def test_a_run_can_be_cancelled_and_keeps_the_text_so_far(serve):
    model = Said()
    with serve(model) as service:
        run = service.ask()
        with service.events(run) as stream:
            model.say("Once upon")
            [next(stream), next(stream)]
            assert service.http.delete(run).status_code == 202
            assert [*stream][-1][1]["stop_reason"] == "cancelled"
        model.say("It was me.", Said.END)
        service.all_events(service.ask("Who?", after=run.removeprefix("/runs/")))
    sent = model.requests[-1]
    check_history(sent)
    assert [message["content"] for message in sent] == ["Go.", "Once upon", "Who?"]


# Decisions


@pytest.mark.parametrize(("is_approved", "told"), [(True, "paid Ada"), (False, "too much")])
def test_a_decision_continues_the_run_and_its_numbers(serve, is_approved, told):
    model = ScriptedLLM(calls(call("pay", "c1", name="Ada")), "Done.")
    with serve(model, tools=[pay]) as service:
        run = service.ask()
        with service.events(run) as stream:
            seen = [next(stream) for _ in range(3)]
            assert service.status(run) == "paused"
            [pending] = seen[-1][1]["result"]["pending"]
            assert (pending["name"], pending["arguments"]) == ("pay", {"name": "Ada"})
            decision = {pending["id"]: {"approved": is_approved, "reason": "too much"}}
            answer = service.http.post(f"{run}/decisions", json=decision)
            assert answer.json()["status"] == "running"
            seen += stream
        assert service.http.post(f"{run}/decisions", json=decision).status_code == 409
    assert numbers(seen) == sorted(set(numbers(seen)))
    assert [data for _, data in seen if data["type"] == "run_started"][-1]["resumed"] is True
    assert seen[-1][1]["stop_reason"] == "answered"
    assert told in model.sent[1].messages[-1]["content"]


@pytest.mark.parametrize(
    "decisions", [{}, {"other": {"approved": True}}, {"c1": {"approved": "who knows"}}]
)
def test_decisions_that_are_none_on_the_waiting_calls_are_refused(serve, decisions):
    with serve(ScriptedLLM(calls(call("pay", "c1", name="Ada"))), tools=[pay]) as service:
        run = service.ask()
        wait_until(lambda: service.status(run) == "paused")
        assert service.http.post(f"{run}/decisions", json=decisions).status_code == 422
        assert service.status(run) == "paused"


def test_a_paused_run_can_be_cancelled(serve):
    with serve(ScriptedLLM(calls(call("pay", "c1", name="Ada"))), tools=[pay]) as service:
        run = service.ask()
        wait_until(lambda: service.status(run) == "paused")
        service.http.delete(run)
        assert service.all_events(run)[-1][1]["stop_reason"] == "cancelled"


def test_a_pause_that_nobody_decides_on_ends(serve):
    model = ScriptedLLM(calls(call("pay", "c1", name="Ada")))
    with serve(model, tools=[pay], keep=0.3) as service:
        stops = [data["stop_reason"] for _, data in service.all_events(service.ask())
                 if data["type"] == "run_finished"]  # fmt: skip
    assert stops == ["paused", "cancelled"]


# What stays on the server


def test_secrets_in_instructions_results_and_errors_do_not_reach_a_client(serve, caplog):
    def fails(messages):
        if messages[-1]["role"] == "tool":
            raise ValueError(f"invalid key {SECRET}")
        return calls(call("look_up", "c1", name="Ada"))

    instructions = f"The key is {SECRET}."
    with serve(fails, tools=[look_up], instructions=instructions) as service:
        run = service.ask()
        text = service.http.get(f"{run}/events").text
    assert "tool_finished" in text
    assert '"stop_reason": "llm_error"' in text
    assert SECRET not in text


def test_the_memory_of_a_run_is_freed_after_its_end(serve):
    with serve(Said(["Done."]), keep=0.2) as service:
        run = service.ask()
        wait_until(lambda: service.http.get(run).status_code == 404)
        assert service.http.get(f"{run}/events").status_code == 404


def test_runs_beyond_the_maximum_are_refused(serve):
    with serve(Said(), most=1) as service:
        run = service.ask()
        refused = service.http.post("/runs", json={"text": "Go."})
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
        after = {"text": "Go.", "after": run.removeprefix("/runs/")}
        assert service.http.post("/runs", json=after).status_code == 409  # it has not ended


def test_a_run_that_raises_does_not_end_the_others(guide, caplog):
    model = Said()

    class Odd:
        """A loop with a bug, which no loop should have."""

        async def run(self, messages, **options):
            if messages[-1]["content"] == "Raise.":
                raise RuntimeError("a bug")
            return await Loop.run(messages, model, **options)

    with Served(guide.create_app(guide.Runs(Odd()))) as service:
        good, bad = service.ask("Go."), service.ask("Raise.")
        wait_until(lambda: service.status(bad) == "failed")
        assert service.http.get(f"{bad}/events").status_code == 204
        model.say("Fine.", Said.END)
        assert text_of(service.all_events(good)) == "Fine."
    assert "RuntimeError: a bug" in caplog.text


# Events on the wire


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_event_crosses_the_wire_and_is_restored(serve, data):
    sent = [data.draw(instances_of(kind)) for kind in KINDS]

    @stage
    def emit_all(ctx):
        for event in sent:
            yield Emit(event)
        return ctx

    stages = [emit_all, *default_stages()]
    with serve(ScriptedLLM("Done."), show=lambda event: event.to_json(), stages=stages) as service:
        seen = service.all_events(service.ask())
    assert numbers(seen) == list(range(1, len(seen) + 1))
    arrived = seen[2 : 2 + len(sent)]
    assert [event.to_json() for event in sent] == [data for _, data in arrived]
    for number, data in arrived:
        restored = event_from_json(data)
        assert restored.seq == number
        assert type(restored) in KINDS


def test_numbers_are_continuous_through_subagents_and_pauses(serve):
    inner = ScriptedLLM(calls(call("look_up", "c2", name="Ada")), "42.")
    research = Loop(tools=[look_up]).as_tool("research", "Research.", inner)
    both = calls(call("research", "c1", task="Ada?"), call("pay", "c3", name="Ada"))
    model = ScriptedLLM(both, "Done.")
    show = lambda event: event.to_json()  # noqa: E731 - the whole event
    with serve(model, show=show, tools=[research, pay]) as service:
        run = service.ask()
        with service.events(run) as stream:
            seen = []
            while not seen or seen[-1][1]["type"] != "run_finished" or seen[-1][1]["path"]:
                seen.append(next(stream))
            [pending] = seen[-1][1]["result"]["pending"]
            service.http.post(f"{run}/decisions", json={pending["id"]: {"approved": True}})
            seen += stream
    assert numbers(seen) == list(range(1, len(seen) + 1))
    assert ["c1"] in [data["path"] for _, data in seen]
    assert json.dumps(seen).count('"run_finished"') == 3
