"""Records of runs: written as JSON lines while they happen, and read back."""

from treadle.reports.record.model import Record, Run
from treadle.reports.record.reading import RecordError, read_record, record_schema
from treadle.reports.record.recorder import Recorder

__all__ = ["Record", "RecordError", "Recorder", "Run", "read_record", "record_schema"]
