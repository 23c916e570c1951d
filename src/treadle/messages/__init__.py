"""Chat messages, the history and its repair, responses, and decoding what a backend returns.

Nothing here calls a backend.
"""

# ruff: noqa: I001 - the aliases of one module stand together
from treadle.errors import safe_str as safe_str
from treadle.messages.decode import (
    NotAResponseError as NotAResponseError,
    check_no_error as check_no_error,
    is_cost as is_cost,
    provider_error as provider_error,
    to_chunk as to_chunk,
    to_response as to_response,
    to_usage as to_usage,
)
from treadle.messages.ending import (
    Ending as Ending,
    ending_of as ending_of,
    is_of_context as is_of_context,
)
from treadle.messages.estimate import (
    CHARACTERS_PER_TOKEN as CHARACTERS_PER_TOKEN,
    estimate_tokens as estimate_tokens,
    estimate_usage as estimate_usage,
)
from treadle.messages.history import History as History
from treadle.messages.json_text import (
    MAX_COUNTED as MAX_COUNTED,
    MAX_VIOLATIONS as MAX_VIOLATIONS,
    MalformedJSONError as MalformedJSONError,
    canonical_json as canonical_json,
    format_path as format_path,
    parse_object as parse_object,
    sha256 as sha256,
    short_json as short_json,
    short_name as short_name,
)
from treadle.messages.measurement import (
    Measured as Measured,
    ModelCall as ModelCall,
    ModelCallStatus as ModelCallStatus,
    Timing as Timing,
    Usage as Usage,
)
from treadle.messages.message import (
    ATOMS as ATOMS,
    NOTHING as NOTHING,
    ORIGIN as ORIGIN,
    SYSTEM_ROLES as SYSTEM_ROLES,
    JSONDict as JSONDict,
    Message as Message,
    Messages as Messages,
    ReadOnlyDict as ReadOnlyDict,
    copy_json as copy_json,
    describe as describe,
    is_dict as is_dict,
    is_list as is_list,
    is_mapping as is_mapping,
    problems_of as problems_of,
    read_only as read_only,
    to_message as to_message,
)
from treadle.messages.origin import for_sdk as for_sdk, has_bound_values as has_bound_values
from treadle.messages.parts import (
    as_text_results as as_text_results,
    data_url as data_url,
    has_parts as has_parts,
    join_messages as join_messages,
    is_content_part as is_content_part,
    placeholder as placeholder,
    sendable_parts as sendable_parts,
    text_of_parts as text_of_parts,
    text_part as text_part,
)
from treadle.messages.repair import (
    InvalidMessagesError as InvalidMessagesError,
    can_join as can_join,
    checked_messages as checked_messages,
    is_blank as is_blank,
    validate_messages as validate_messages,
)
from treadle.messages.response import (
    CallChunk as CallChunk,
    Chunk as Chunk,
    Response as Response,
    ToolCall as ToolCall,
    ToolResult as ToolResult,
    settled as settled,
)
from treadle.messages.sanitizing import (
    sendable as sendable,
    sendable_json as sendable_json,
    valid_arguments as valid_arguments,
    valid_name as valid_name,
)
from treadle.messages.stream import StreamAccumulator as StreamAccumulator
