"""The local model really extracts facts from the worker's prompt, which a later run then recalls.

With its 135 million parameters it writes facts as text; asked for a list by a tool call, it copies the example of
its prompt. So it gets short instructions, and a function of three lines makes the list of its text.
"""

import re

import pytest
from tests.sessions.memory.parts import add_turn

from treadle import Loop, default_stages
from treadle.providers.local import LocalModel
from treadle.sessions import SQLiteSessions
from treadle.sessions.memory import MemoryWorker, SQLiteMemories, recall_memories
from treadle.testing import ScriptedLLM, call, calls

INSTRUCTIONS = "List the facts about the user in the messages, one short sentence each."
SAID = "My name is Ann and I live in Oslo. I am allergic to nuts."


@pytest.mark.local
def test_the_local_model_extracts_facts(tmp_path):
    sessions = SQLiteSessions(tmp_path / "s.sqlite")
    memories = SQLiteMemories(tmp_path / "m.sqlite")
    add_turn(sessions, "ann/1", SAID)
    # Threads wait for each other actively: on shared cores, one is steadier than two.
    with LocalModel(threads=1) as local:

        def model(messages, **_opts):
            text = local(messages)["choices"][0]["message"]["content"]
            return calls(call("final_answer", value=re.split(r"(?<=\.)\s+", text)))

        worker = MemoryWorker(
            sessions,
            memories,
            model,
            scope_of=lambda one: one.split("/")[0],
            instructions=INSTRUCTIONS,
        )
        report = worker.run_once_sync()
    assert report.failed == {}
    texts = [fact.text for fact in memories.facts("ann")]
    assert any("Oslo" in text for text in texts)
    assert any("nuts" in text for text in texts)
    assert SAID not in texts  # in its own words
    answer = ScriptedLLM("No.")
    recall = recall_memories(memories, scope="ann")
    Loop.run_sync("May I eat this?", answer, stages=[recall, *default_stages()])
    assert "nuts" in answer.sent[0].messages[0]["content"]
