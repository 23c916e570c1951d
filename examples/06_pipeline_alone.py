"""A pipeline without a model: clean a log, line by line.

It does not use LLMs. Run it with ``python examples/06_pipeline_alone.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.pipeline import goto, goto_point, stage, switch
from treadle.pipeline.streams import StreamPipeline, composer, dead_end


@dataclass(frozen=True)
class Line:
    """One line of the log."""

    text: str
    level: str = ""
    repeated: int = 1


def parse(line: Line) -> Line:
    """Separate the level from the text."""
    level, _, text = line.text.partition(" ")
    return replace(line, level=level.lower(), text=text)


def unwrap(line: Line) -> Line:
    """Remove one pair of brackets."""
    return replace(line, text=line.text[1:-1])


@stage(provides=["text"])
def shorten(line: Line, width: int = 20) -> Line:
    """Truncate a long text."""
    return replace(line, text=line.text[:width])


def merge_repeats(line: Line, last: Line | None) -> tuple[list[Line], Line]:
    """Keep a line until a different one follows, and count its repetitions."""
    if last is None:
        return [], line
    if (last.text, last.level) == (line.text, line.level):
        return [], replace(last, repeated=last.repeated + 1)
    return [last], line


CLEAN = StreamPipeline(
    parse,
    switch(
        lambda line: line.level,
        {"error": [], "info": shorten(width=12), "debug": dead_end(), "end": []},
        name="by_level",
    ),
    goto_point("brackets"),
    switch(lambda line: line.text.startswith("["), {True: unwrap, False: []}, name="is_wrapped"),
    goto("brackets", lambda line: line.text.startswith("[")),
    composer(merge_repeats),
    item=Line,
)

LOG = [
    "INFO server started on port 8080",
    "DEBUG cache warm",
    "ERROR [[disk full]]",
    "ERROR disk full",
    "ERROR disk full",
    "INFO bye",
    "END",
]

if __name__ == "__main__":
    print(CLEAN.diagram("text"))
    for line in CLEAN.stream_sync((Line(text) for text in LOG), concurrency=4):
        print(f"{line.level:5} {line.text} (x{line.repeated})")
