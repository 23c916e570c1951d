"""The messages of a transport, before the SDK reads them: what of them it would not survive, or not notice."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from treadle.mcp.log import warn
from treadle.messages import JSONDict, is_dict, is_list, safe_str, short_name
from treadle.messages.sanitizing import sendable_json
from treadle.redaction import redacted

if TYPE_CHECKING:
    from mcp.client import Transport

OnEnd = Callable[[str], object]
"""Takes the reason why a connection ends; empty if the server has closed it."""
OnRefused = Callable[[str, str], object]
"""Takes the name of a tool that cannot be used, and the reason."""
SERVER_ERROR = -32099
"""What replaces the code -32000 of a server: the SDK's own error with it says that the connection was closed."""


@contextlib.asynccontextmanager
async def watched(
    transport: Transport, version: Callable[[], str], on_end: OnEnd, on_refused: OnRefused
) -> AsyncGenerator[Any]:
    """A transport whose messages are checked, see `_Reader`.

    Args:
        transport: that of the SDK.
        version: returns the version of the protocol, once there is one.
        on_end: is called when the connection ends.
        on_refused: is called with each listed tool that the SDK cannot read.
    """
    async with transport as (read, write):
        sent = _Sent(write, on_end)
        yield _Reader(read, sent, version, on_end, on_refused), sent


class _Stream:
    """A stream of the SDK, of which a part is changed."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> Any:
        return await self._stream.__aexit__(*exc_info)


class _Sent(_Stream):
    """The stream to the server: it knows the last id of a request, and reports its end."""

    def __init__(self, stream: Any, on_end: OnEnd) -> None:
        super().__init__(stream)
        self._on_end = on_end
        self.last_id = 0

    async def send(self, item: Any) -> None:
        import anyio  # noqa: PLC0415 - slow to import

        number = getattr(item.message, "id", None)
        if isinstance(number, int) and hasattr(item.message, "method"):
            self.last_id = max(self.last_id, number)
        try:
            await self._stream.send(item)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._on_end("")
            raise


class _Reader(_Stream):
    """The stream from the server.

    A line that is no message is skipped, since many servers print. A response that cannot be read is an error of
    its request. What may have been the response to any request ends the connection: that one would wait in vain.
    """

    def __init__(
        self,
        stream: Any,
        sent: _Sent,
        version: Callable[[], str],
        on_end: OnEnd,
        on_refused: OnRefused,
    ) -> None:
        super().__init__(stream)
        self._sent = sent
        self._version = version
        self._on_end = on_end
        self._on_refused = on_refused
        self._read: deque[Any] = deque()

    async def __anext__(self) -> Any:
        try:
            while not self._read:
                item = await self._stream.__anext__()
                if isinstance(item, Exception):
                    self._read.extend(self._repaired(item))
                else:
                    self._read.append(self._known(item))
            return self._read.popleft()
        except StopAsyncIteration:
            self._on_end("")
            raise

    def _end(self, reason: str) -> StopAsyncIteration:
        self._on_end(reason)
        return StopAsyncIteration()

    def _known(self, item: Any) -> Any:
        """A message as the SDK should see it."""
        from mcp.types import CONNECTION_CLOSED  # noqa: PLC0415 - an extra

        message = item.message
        if hasattr(message, "method"):
            return item
        number = message.id
        if isinstance(number, int) and number > self._sent.last_id:
            raise self._end(f"it responded to a request {number} that was not sent")
        error, result = getattr(message, "error", None), getattr(message, "result", None)
        if error is not None and error.code == CONNECTION_CLOSED:
            error.code = SERVER_ERROR
        if is_dict(result) and is_list(result.get("tools")):
            result["tools"] = [one for one in result["tools"] if self._is_usable(one, result)]
        return item

    def _is_usable(self, tool: Any, result: Mapping[str, Any]) -> bool:
        """Whether the SDK can read a tool of a list: of one with another tool it would read none."""
        from mcp_types.methods import validate_server_result  # noqa: PLC0415 - an extra

        try:
            version = self._version()
            validate_server_result("tools/list", version, {**result, "tools": [tool]})
        except ValueError as error:
            name = tool.get("name") if is_dict(tool) else tool
            self._on_refused(short_name(repr(name)), _problems_of(error))
            return False
        # Its patterns would be searched for by Python's engine, in texts of the server.
        tool.pop("outputSchema", None)
        return True

    def _repaired(self, error: Exception) -> Iterator[Any]:
        """The messages to read in place of what the SDK cannot read; none if it is skipped.

        The SDK refuses JSON that Python reads: a byte order mark, escaped lone surrogates, long numbers, deep
        nesting, a batch.
        """
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - as above

        given = _given(error)
        value = _parsed(given) if isinstance(given, str) else given
        found: list[Any] = value if is_list(value) else [value]
        for one in found:
            made = self._message(one) if is_dict(one) else None
            if made is None:
                self._refuse(one if is_dict(one) else given)
            else:
                yield self._known(SessionMessage(made))

    def _message(self, given: Mapping[str, Any]) -> Any:
        """The message in an object; for a malformed response, an error. None if it is neither."""
        from mcp import types  # noqa: PLC0415 - an extra

        try:
            return types.jsonrpc_message_adapter.validate_python(_plain(given), by_name=False)
        except ValueError as error:
            number = given.get("id")
            if type(number) not in {int, str} or not _is_response(given):
                return None
            text = f"malformed response: {_problems_of(error)}"
            made = types.ErrorData(code=types.PARSE_ERROR, message=text)
            return types.JSONRPCError(jsonrpc="2.0", id=number, error=made)

    def _refuse(self, given: Any) -> None:
        """Skip something that is no message; raises if it may have been a response."""
        is_text = isinstance(given, str)
        if is_text and "\ufffd" in given:
            raise self._end("it wrote bytes that are not UTF-8")
        if '"jsonrpc"' in given if is_text else is_dict(given) and _is_response(given):
            raise self._end("it wrote a message that cannot be read")
        warn("an MCP server wrote a line that is no message: %s", redacted(short_name(repr(given))))


def _is_response(given: Mapping[str, Any]) -> bool:
    return "result" in given or "error" in given or ("jsonrpc" in given and "method" not in given)


def _parsed(line: str) -> Any:
    """The value of a line; the line itself if it is no JSON."""
    try:
        return json.loads(line.removeprefix("\ufeff"), parse_int=_integer)
    except (ValueError, RecursionError):
        return line


def _integer(digits: str) -> Any:
    return int(digits) if len(digits) < _MAX_DIGITS else digits


_MAX_DIGITS = 300
"""The digits of an integer that may be too large for a float; such an integer becomes a text."""


def _plain(message: Mapping[str, Any]) -> JSONDict:
    """A message in values that the SDK reads; an id such as ``4.0`` is an integer."""
    made: JSONDict = sendable_json(message)
    number = made.get("id")
    if isinstance(number, float) and number.is_integer():
        made["id"] = int(number)
    return made


def _given(error: Exception) -> Any:
    """The line that is no JSON; or its value, if it is an object but no message."""
    for problem in _errors_of(error):
        is_whole = problem["type"] == "json_invalid" or problem["loc"][-1:] == ("method",)
        if is_whole or is_list(problem["input"]):
            return problem["input"]
    return safe_str(error)


def _problems_of(error: Exception) -> str:
    """The first problems of pydantic in one line."""
    found = [
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
        for problem in _errors_of(error)
        if problem["loc"][-1:] != ("method",)  # a response has none
    ]
    return "; ".join(found[:3]) or safe_str(error)


def _errors_of(error: Exception) -> Sequence[Any]:
    errors: Any = getattr(error, "errors", list)
    return errors()
