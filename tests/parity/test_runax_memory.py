"""Parity with RunaxAI: the cursor of memory extraction, in a real Redis, when a conversation is summarised."""

from tests.redis_server import redis_server, redis_url
from tests.sessions.memory.parts import RuleModel, texts_of, user_texts

from treadle import Loop, default_stages
from treadle.sessions import RedisSessions, compact_history
from treadle.sessions.memory import MemoryWorker, RedisMemories
from treadle.testing import ScriptedLLM

__all__ = ["redis_server", "redis_url"]


def test_a_summary_makes_the_worker_neither_lose_nor_repeat_a_message(redis_url):
    """RunaxAI resets the cursor at each summary, so that its worker reads all again; here it need not.

    A summary changes what the model sees, not what is stored. The cursor counts stored messages, so it stays, and
    each message is read once, before or after the summary that covers it.
    """
    sessions, memories = RedisSessions(redis_url), RedisMemories(redis_url)
    session, model = sessions.session("ann"), RuleModel()
    summaries = []

    def summarize(messages):
        summaries.append(messages)
        return "Notes."

    loop = Loop(stages=[compact_history(summarize, max_tokens=300), *default_stages()])
    worker = MemoryWorker(sessions, memories, model)
    for number in range(12):
        answer = ScriptedLLM(f"Answer {number} " + "a" * 200)
        loop.run_sync(f"Question {number} " + "q" * 200, answer, session=session)
        if number % 3 == 0:
            worker.run_once_sync()
    worker.run_once_sync()
    assert len(summaries) > 1
    assert len(session.load()["messages"]) < len(session.messages()) == 24
    assert sorted(model.read) == texts_of(memories, "ann") == user_texts(sessions, "ann")
    assert all(len(fact.sources) == 1 for fact in memories.facts("ann"))
