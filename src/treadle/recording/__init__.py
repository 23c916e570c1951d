"""Recordings: runs written as JSON lines while they happen, and read back as data."""

import treadle.recording.errors  # noqa: F401 - it sets the form of exceptions
from treadle.recording.model import Part, Recording, Run
from treadle.recording.reader import RecordingError, read_recording, recording_schema
from treadle.recording.recorder import Recorder

__all__ = [
    "Part",
    "Recorder",
    "Recording",
    "RecordingError",
    "Run",
    "read_recording",
    "recording_schema",
]
