"""Recordings: runs written as JSON lines while they happen, and read back as data."""

from treadle.codec import exact_form
from treadle.recording.errors import error_as_data, error_from_data
from treadle.recording.model import Recording, Run, Segment
from treadle.recording.reader import RecordingError, read_recording, recording_schema
from treadle.recording.recorder import Recorder

__all__ = [
    "Recorder",
    "Recording",
    "RecordingError",
    "Run",
    "Segment",
    "read_recording",
    "recording_schema",
]

exact_form("error", BaseException, error_as_data, error_from_data)
