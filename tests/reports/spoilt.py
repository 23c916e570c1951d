"""Records in which something was replaced by something else, as nobody's recorder would write them."""

import io
import json
import random

from treadle.recording.reader import RecordingError, read_lines
from treadle.recording.recorder import Recorder

from .samples import EVENTS, eventful, recorded

NASTY = [
    None,
    True,
    0,
    -1,
    10**400,
    1e308,
    -1e308,
    "",
    "\ud800\u202e\x00",
    "<img src=x onerror=window.hacked=1>",
    "__proto__",
    [],
    [None],
    [[]],
    {},
    {"__proto__": 1, "role": 7, "content": {"a": 1}, "tool_calls": 3},
    ["a"] * 60,
    {"id": "x", "name": "y", "arguments": "{", "input": None, "fingerprint": "", "extra": {}},
]


def spoil(value, dice):
    """A copy with one part replaced, dropped or put in twice, somewhere in it."""
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(sorted(value))
        if dice.random() < 0.05:
            return {name: part for name, part in value.items() if name != key}
        return {**value, key: spoil(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.8:
        place = dice.randrange(len(value))
        return [*value[:place], spoil(value[place], dice), *value[place:]]
    return dice.choice(NASTY)


def spoilt_records(seed, count, *, readable=True):
    """Make some.

    Args:
        seed: for another choice.
        count: how many.
        readable: only those that can be read.
    """
    dice = random.Random(seed)
    stream = io.StringIO()
    eventful(Recorder(stream))
    made = []
    while len(made) < count:
        lines = (dice.choice([stream.getvalue(), recorded(*EVENTS)])).splitlines()
        for _ in range(dice.randrange(1, 6)):
            place = dice.randrange(1, len(lines))
            what = dice.random()
            if what < 0.2:
                del lines[place]
            elif what < 0.3:
                lines.insert(dice.randrange(1, len(lines)), lines[place])
            else:
                lines[place] = json.dumps(spoil(json.loads(lines[place]), dice))
            if len(lines) < 3:
                break
        record = "".join(f"{line}\n" for line in lines).encode()
        try:
            read_lines(record.splitlines(keepends=True), "spoilt")
        except RecordingError:
            if readable:
                continue
        made.append(record)
    return made
