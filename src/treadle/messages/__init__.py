"""Chat messages, the history and its repair, responses, and decoding what a backend returns.

Nothing here calls a backend.
"""

from treadle.messages.decode import NotAResponseError, is_cost, to_chunk, to_response, to_usage
from treadle.messages.history import History
from treadle.messages.json_text import (
    MAX_LENGTH,
    MAX_PATH,
    MAX_VIOLATIONS,
    MalformedJSONError,
    canonical_json,
    format_path,
    json_type,
    parse_object,
    safe_str,
    short_json,
    short_name,
)
from treadle.messages.message import (
    ATOMS,
    ROLES,
    JSONDict,
    Message,
    Messages,
    copy_json,
    describe,
    is_dict,
    is_list,
    is_mapping,
    problems_of,
    to_message,
)
from treadle.messages.repair import (
    NO_RESULT,
    join_messages,
    repair_history,
    sendable,
    sendable_json,
    valid_arguments,
    valid_name,
)
from treadle.messages.response import (
    CallChunk,
    Chunk,
    Response,
    ToolCall,
    ToolResult,
    Usage,
)
from treadle.messages.stream import StreamAccumulator
from treadle.messages.validate import InvalidMessagesError, validate_messages

__all__ = [
    "ATOMS",
    "MAX_LENGTH",
    "MAX_PATH",
    "MAX_VIOLATIONS",
    "NO_RESULT",
    "ROLES",
    "CallChunk",
    "Chunk",
    "History",
    "InvalidMessagesError",
    "JSONDict",
    "MalformedJSONError",
    "Message",
    "Messages",
    "NotAResponseError",
    "Response",
    "StreamAccumulator",
    "ToolCall",
    "ToolResult",
    "Usage",
    "canonical_json",
    "copy_json",
    "describe",
    "format_path",
    "is_cost",
    "is_dict",
    "is_list",
    "is_mapping",
    "join_messages",
    "json_type",
    "parse_object",
    "problems_of",
    "repair_history",
    "safe_str",
    "sendable",
    "sendable_json",
    "short_json",
    "short_name",
    "to_chunk",
    "to_message",
    "to_response",
    "to_usage",
    "valid_arguments",
    "valid_name",
    "validate_messages",
]
