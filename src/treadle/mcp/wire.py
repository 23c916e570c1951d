"""The messages of a transport, before the SDK reads them: what of them it would not survive, or not notice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from treadle.mcp.log import warn
from treadle.messages import is_dict, is_list, safe_str, short_name
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

    async def __anext__(self) -> Any:
        try:
            while True:
                item = await self._stream.__anext__()
                read = self._broken(item) if isinstance(item, Exception) else self._known(item)
                if read is not None:
                    return read
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

    def _broken(self, error: Exception) -> Any:
        """What to read in place of something that is no message; None if it is skipped."""
        from mcp import types  # noqa: PLC0415 - an extra
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - as above

        given = _given(error)
        if isinstance(given, str) and given.startswith("\ufeff"):  # a byte order mark
            try:
                return self._known(
                    SessionMessage(
                        types.jsonrpc_message_adapter.validate_json(given[1:], by_name=False)
                    )
                )
            except ValueError as cause:
                error, given = cause, _given(cause)
        if isinstance(given, str) and "\ufffd" in given:
            raise self._end("it wrote bytes that are not UTF-8")
        is_response = is_dict(given) and ("result" in given or "error" in given)
        number: Any = given.get("id") if is_dict(given) else None
        if is_response and type(number) in {int, str}:
            made = types.ErrorData(
                code=types.PARSE_ERROR, message=f"malformed response: {_problems_of(error)}"
            )
            return self._known(
                SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=number, error=made))
            )
        if is_response or (isinstance(given, str) and '"jsonrpc"' in given):
            raise self._end("it wrote a message that cannot be read")
        warn("an MCP server wrote a line that is no message: %s", redacted(short_name(repr(given))))
        return None


def _given(error: Exception) -> Any:
    """The line that is no JSON; or its value, if it is an object but no message."""
    for problem in _errors_of(error):
        if problem["type"] == "json_invalid" or problem["loc"][-1:] == ("method",):
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
