"""Chat messages, the history and its repair, responses, and decoding what a backend returns.

Nothing here calls a backend.
"""

# ruff: noqa: I001 - the aliases of one module stand together
from treadle.errors import safe_str as safe_str
from treadle.messages.decode import NotAResponseError as NotAResponseError
from treadle.messages.ending import Ending as Ending, is_of_context as is_of_context
from treadle.messages.estimate import (
    CHARACTERS_PER_TOKEN as CHARACTERS_PER_TOKEN,
    estimate_tokens as estimate_tokens,
)
from treadle.messages.history import History as History
from treadle.messages.json_text import (
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
from treadle.messages.origin import for_sdk as for_sdk
from treadle.messages.repair import InvalidMessagesError as InvalidMessagesError
from treadle.messages.response import (
    CallChunk as CallChunk,
    Chunk as Chunk,
    Response as Response,
    ToolCall as ToolCall,
    ToolResult as ToolResult,
    settled as settled,
)
