"""Decisions by the ids of calls: each is bound to the pause that asks."""

import dataclasses
import json
import re

from treadle import Paused


def on(paused, decisions):
    """Decisions with the ids of the pending calls in place of the ids of the calls.

    Args:
        paused: a pause, or its state in any form.
        decisions: by id of the call; an id that no pending call has is kept.
    """
    if all(re.search("@[0-9a-f]{16}$", key) for key in decisions):
        return decisions
    ids = {one.rpartition("@")[0]: one for one in pending_ids(paused)}
    return {ids.get(key, key): decision for key, decision in decisions.items()}


def pending_ids(paused):
    """The ids of the pending calls of a pause, or of its state in any form."""
    if isinstance(paused, Paused):
        return [one.id for one in paused.pending]
    state = json.loads(paused) if isinstance(paused, (str, bytes)) else paused
    return [one["id"] for one in state["pending"]]


def unbound(paused):
    """The pending calls of a pause, with the ids of the calls."""
    return tuple(dataclasses.replace(one, id=one.call_id) for one in paused.pending)
