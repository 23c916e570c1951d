"""A decision approves what the pause that asked for it shows, and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import (
    Loop,
    Ok,
    OptionError,
    Paused,
    Pauses,
    PendingCall,
    approve,
    default_stages,
    deny,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, RecordedTools, Way, answers, stored

SECRET = {"pauses": Pauses(secret="s3cret")}


def paying(recorded, amount, **options):
    """A signed pause of a run that waits for the approval of a payment; every run uses the same id."""
    loop, model = (
        recorded.loop(**SECRET, **options),
        ScriptedLLM(calls(call("pay", "call_1", amount=amount))),
    )
    return loop, SYNC.run(loop, model)


@pytest.fixture(params=["resume_sync", "resume", "resume_stream"])
def resume(request):
    return lambda loop, *given: getattr(loop, request.param)(*given)


class TestBound:
    """The id of a pending call carries the pause."""

    def test_a_decision_given_for_one_run_approves_nothing_in_another(self, recorded, resume):
        loop, small = paying(recorded, 500)
        _, large = paying(recorded, 1_000_000)
        decisions = {one.id: approve for one in small.pending}
        assert [one.call_id for one in small.pending] == [one.call_id for one in large.pending]
        with pytest.raises(
            OptionError, match=r"^decisions: the decision on 'call_1@\w+' belongs"
        ) as e:
            resume(loop, large.state, decisions, ScriptedLLM("done"))
        assert f"to another pause; waiting calls: {large.pending[0].id}" in str(e.value)
        assert recorded.done == []
        assert isinstance(loop.resume_sync(small, decisions, ScriptedLLM("done")), Ok)
        assert recorded.done == ["pay 500"]

    def test_the_id_of_the_call_alone_is_refused(self, recorded, resume):
        loop, paused = paying(recorded, 500)
        text = (
            rf"^decisions: 'call_1' does not name the pause; the id .* is '{paused.pending[0].id}'$"
        )
        with pytest.raises(OptionError, match=text):
            resume(loop, paused, {"call_1": approve}, ScriptedLLM("done"))
        assert recorded.done == []

    def test_the_id_of_a_stage_may_have_any_form(self, way):
        """The stage finds the decision by the id that it gave."""

        def ask(ctx):
            if "a/b@c" in ctx.approvals:
                return ctx
            return ctx.pause((PendingCall("a/b@c", "ask", {}, "?"),))

        loop = Loop(stages=[ask, *default_stages()])
        paused = way.run(loop, ScriptedLLM())
        assert paused.pending[0].call_id == "a/b@c"
        assert isinstance(way.resume(loop, paused, {"a/b@c": approve}, ScriptedLLM("x")), Ok)

    def test_a_pending_call_in_a_history_of_its_own_has_no_pause(self):
        assert PendingCall("b", "wipe", {}, "?").call_id == "b"


class TestSubagent:
    """The id of a call of a subagent carries the pause of the subagent."""

    def test_a_decision_on_one_of_its_pauses_is_not_one_on_the_next(self, recorded, way):
        """A stage of the subagent asks in each iteration, with the same id."""
        asked = []

        def ask(ctx):
            if "q" in ctx.approvals:
                return ctx
            asked.append(ctx.iteration)
            return ctx.pause((PendingCall("q", "ask", {"iteration": ctx.iteration}, "?"),))

        inner = ScriptedLLM(calls(call("note", "n", n=1)), "in")
        child = recorded.loop(stages=[ask, *default_stages()]).as_tool("child", "c", inner)
        loop, model = Loop(tools=[child]), ScriptedLLM(calls(call("child", "k", task="t")), "out")
        first = way.run(loop, model)
        second = way.resume(loop, stored(first), {"k/q": approve}, model)
        assert isinstance(second, Paused)
        assert [one.arguments for one in second.pending] == [{"iteration": 2}]
        result = way.resume(loop, stored(second), {"k/q": approve}, model)
        assert (answers(result.messages), asked) == ({"k": "in"}, [1, 2])

    def test_another_pause_of_it_is_named_as_such(self, family):
        loop = family(calls(call("wipe", "w", path="/")), calls(call("wipe", "w", path="/x")))
        model = ScriptedLLM(calls(call("helper", "k", task="t")))
        first = SYNC.run(loop, model)
        old = first.pending[0].id
        assert old.startswith("k/w@")
        second = SYNC.resume(loop, first, {old: deny()}, model)
        with pytest.raises(OptionError, match="belongs to another pause; waiting calls: k/w"):
            loop.resume_sync(second, {old: approve}, model)


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), min_size=1, max_size=3),
    st.data(),
)
def test_no_decision_of_any_earlier_pause_is_accepted_later(batches, data):
    """Whatever is decided when: each pause accepts the ids of its own pending calls only."""
    recorded = RecordedTools()
    loop = Loop(tools=recorded.tools)
    script = [
        calls(*(call("wipe", f"c{n}", path=p) for n, p in enumerate(batch))) for batch in batches
    ]
    result, earlier = SYNC.run(loop, ScriptedLLM(*script, "done")), set()
    model = ScriptedLLM(*script[1:], "done")
    while isinstance(result, Paused):
        ids = [one.id for one in result.pending]
        assert earlier.isdisjoint(ids)
        for old in earlier:
            with pytest.raises(OptionError, match="belongs to another pause"):
                loop.resume_sync(result, {old: approve}, model)
        earlier.update(ids)
        some = data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
        result = Way("sync").resume(loop, result, dict.fromkeys(some, approve), model)
