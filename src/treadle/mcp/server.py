"""`MCPServer`: the tools and resources of a server, for runs under any driver."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack

from treadle.errors import OptionError, ToolDefinitionError, check_names
from treadle.mcp.approvals import pins_of, why_refused, write_pins
from treadle.mcp.definitions import Definition, believed
from treadle.mcp.errors import MCPConnectionError, ToolNotApprovedError
from treadle.mcp.log import LEFT_OUT, warn
from treadle.mcp.reconnecting_client import ReconnectingClient
from treadle.mcp.targets import Target, check_installed
from treadle.messages import JSONDict, is_mapping, safe_str, short_name
from treadle.messages.sanitizing import MAX_NAME, sendable_json, valid_name
from treadle.redaction import redacted
from treadle.results import Err
from treadle.tools import Tool, ToolBehaviour, ToolContext, tool_hint
from treadle.tools.return_value import read_call_result, resource_part

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT

R = TypeVar("R")

CALL_SECONDS = 60.0
"""The default time limit of a call; also that of MCP's SDK for TypeScript."""
CONNECT_SECONDS = 30.0
"""The default time limit of connecting: the first start of ``uvx`` or ``npx`` downloads a package."""

Report: TypeAlias = Callable[[str, float | None, Any], None]


class MCPServer:
    """A server of the Model Context Protocol, whose tools a loop can use.

    It is a context manager, sync and async, which connects at the start and disconnects at the end. The connection
    lives in a separate thread, so the tools work in any run: on asyncio, on trio, in `Loop.run_sync`, in several
    event loops and threads at once. If the server was lost, the next call starts it, or connects to it, again.

    Args:
        server: a command that starts it, as a text or a list of arguments; the URL of a server with the transport
            streamable HTTP; or a server object of the MCP SDK, which runs in this process.
        name: its name in errors, and before the names of its tools where they clash, see `mcp_tools`. None takes
            the name that the server says, else the command or the host.
        prefix: a text before the name of each tool, such as ``"git_"``.
        trusted: whether to believe annotations that make policies less strict, such as ``readOnlyHint``. Those
            that make them stricter are always believed.
        include: the names of the tools to use, as the server calls them; None means all.
        exclude: the names of tools not to use.
        approved: the digests of the approved definitions by name of the tool, see `digests`; or the path of a JSON
            file with them, which `approve` writes. Tools with other definitions are refused. None approves those
            that the server has when `tools` is called.
        env: environment variables of the process. It gets only these and a few of this process, such as ``PATH``.
        cwd: the folder in which the process starts.
        headers: headers of each HTTP request.
        connect_timeout: seconds that connecting may take.
        **options: options of the tools, see `Tool`. The default of ``timeout`` is 60 seconds. The default of
            ``retries`` is 1 for idempotent tools, so that a call during which the server was lost is sent again.

    Raises:
        OptionError: an option that does not exist, does not apply or has a wrong value.
        MissingExtraError: the MCP SDK is not installed.
    """

    def __init__(
        self,
        server: Any,
        *,
        name: str | None = None,
        prefix: str = "",
        trusted: bool = False,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        approved: Mapping[str, str] | str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
        connect_timeout: float = CONNECT_SECONDS,
        **options: Unpack[ToolBehaviour],
    ) -> None:
        check_installed()
        check_names(options, ToolBehaviour.__annotations__, "MCPServer: unknown option", tool_hint)
        self._target = Target(server, env, cwd, headers)
        self._name = name
        self._prefix = prefix
        self._include = None if include is None else _names("include", include)
        self._exclude = _names("exclude", exclude)
        self._pins = None if approved is None else pins_of(approved)
        self._connect_timeout = connect_timeout
        self._options = options
        self._client: ReconnectingClient | None = None
        self._seen: dict[str, str] = {}
        self._made: dict[tuple[str, str], Tool] = {}
        self._left_out: set[tuple[str, str]] = set()
        self.is_trusted = trusted

    def __repr__(self) -> str:
        return f"MCPServer({str(self._target)!r}, name={self.name!r})"

    @property
    def name(self) -> str:
        """The given name; else that which the server says; else the command or the host."""
        if self._name is not None:
            return self._name
        said = None if self._client is None else self._client.server_name
        return valid_name(said) if said else self._target.name

    # Connecting

    def __enter__(self) -> Self:
        client = self._begin()
        try:
            client.client_thread.call_sync(client.connected)
            self._check_included()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        client = self._connected_client()
        try:
            client.client_thread.call_sync(client.disconnect)
        finally:
            self._client = None
            client.end()

    async def __aenter__(self) -> Self:
        client = self._begin()
        try:
            await client.call(client.connected)
            self._check_included()
        except BaseException:
            self._client = None
            client.end()  # this closes what was opened, too
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        client = self._connected_client()
        try:
            await client.call(client.disconnect)
        finally:
            self._client = None
            client.end()

    def _begin(self) -> ReconnectingClient:
        if self._client is not None:
            raise OptionError(f"{self!r} is connected already")
        self._client = ReconnectingClient(self._target, self._connect_timeout)
        return self._client

    def _connected_client(self) -> ReconnectingClient:
        if self._client is None:
            raise MCPConnectionError(f"{self!r} is not connected; use it in a `with` block")
        return self._client

    def _check_included(self) -> None:
        found = self._connected_client().definitions
        self._seen = self._seen or self.digests()
        check_names(self._include or (), found, f"MCPServer: include: {self.name!r} has no tool")

    # Tools

    def tools(self) -> list[Tool]:
        """The tools of the server, as it listed them last. This does not wait for the server.

        A tool whose name or schema is invalid is left out, and logged.

        Raises:
            MCPConnectionError: the server is not connected.
            ToolNotApprovedError: the option ``approved`` has not the definitions of some tools.
        """
        refused = self.refused()
        if refused:
            raise ToolNotApprovedError(why_refused(self.name, refused, self._pins or {}), refused)
        self._seen.update(self.digests())
        return self._tools_of(self._offered())

    async def latest_tools(self) -> list[Tool]:
        """The tools for a run that is going on; see `refresh_tools`.

        This waits for a list that the server reported as changed. Definitions that are not approved are left out:
        those that the option ``approved`` has not; without it, those of a server that is not trusted which `tools`
        has not returned, since they are new or have changed. So are invalid definitions. All of these are logged.
        """
        await self._connected_client().settle()
        offered: list[Definition] = []
        for one in self._offered():
            if self._is_approved(one):
                offered.append(one)
            else:
                self._leave_out(one, "it is new or has changed, and has no approval")
        return self._tools_of(offered)

    def _is_approved(self, one: Definition) -> bool:
        """Whether a definition may be offered in a run that is going on."""
        if self._pins is not None:
            return self._pins.get(one.name) == one.digest
        return self.is_trusted or self._seen.get(one.name) == one.digest

    def _leave_out(self, one: Definition, reason: str) -> None:
        """Log once that a tool is not offered."""
        if (one.digest, reason) not in self._left_out:
            self._left_out.add((one.digest, reason))
            warn(LEFT_OUT, self.name, repr(short_name(one.name)), reason)

    def refused(self) -> tuple[str, ...]:
        """The names of the tools whose definitions the option ``approved`` does not have."""
        pins = self._pins
        if pins is None:
            return ()
        return tuple(name for name, digest in self.digests().items() if pins.get(name) != digest)

    def digests(self) -> dict[str, str]:
        """The digests of the definitions that the server has now, by name of the tool; for ``approved``.

        A digest covers the name, title, description, input schema and annotations of a tool.
        """
        return {one.name: one.digest for one in self._offered()}

    def approve(self, path: str | os.PathLike[str]) -> None:
        """Approve the definitions that the server has now.

        Args:
            path: the JSON file to write them to, for the option ``approved``.
        """
        self._pins = self.digests()
        write_pins(path, self._pins)

    def _offered(self) -> list[Definition]:
        """The definitions of the tools that ``include`` and ``exclude`` allow."""
        return [
            one
            for name, one in self._connected_client().definitions.items()
            if name not in self._exclude and (self._include is None or name in self._include)
        ]

    def _tools_of(self, definitions: Iterable[Definition]) -> list[Tool]:
        """The tools of definitions, without those that are invalid; each is made once."""
        names = _names_of(self._connected_client().definitions)
        found: list[Tool] = []
        for one in definitions:
            key = one.digest, names[one.name]
            try:
                if key not in self._made:
                    self._made[key] = self._make_tool(one, names[one.name])
                found.append(self._made[key])
            except ToolDefinitionError as error:
                self._leave_out(one, str(error))
        return found

    def _make_tool(self, definition: Definition, name: str) -> Tool:
        if not 0 < len(definition.name) <= MAX_NAME:
            raise ToolDefinitionError(f"expected a name of 1 to {MAX_NAME} characters")
        facts = definition.facts
        given: Any = facts.get("annotations")
        hints = believed(given if is_mapping(given) else {}, is_trusted=self.is_trusted)
        title = facts.get("title") or hints.get("title") or ""
        options: dict[str, Any] = {"timeout": CALL_SECONDS, "annotations": hints, **self._options}
        made = Tool(
            valid_name(self._prefix + name),
            safe_str(facts.get("description") or title),
            facts["inputSchema"],
            fn=RemoteTool(self, definition),
            **options,
        )
        if made.idempotent and "retries" not in options:
            return dataclasses.replace(made, retries=1)
        return made

    async def forward(
        self, definition: Definition, arguments: Mapping[str, Any], report: Report | None
    ) -> Any:
        """Call a tool.

        Args:
            definition: the definition that was offered to the model.
            arguments: valid arguments.
            report: receives the progress, see `ToolContext.report`; None if there is no listener.

        Returns:
            The content parts of the result, or its structured content if it has no parts. An ``Err`` if the call
            failed, or was refused by the server or by this object.

        Raises:
            MCPConnectionError: the server cannot be connected to, or was lost while the call ran.
        """
        client = self._connected_client()
        try:
            return await client.call(self._forward, client, definition, arguments, report)
        except MCPConnectionError as error:
            # The model reads this text: what a process writes to stderr is for the log.
            raise MCPConnectionError(error.text) from error

    async def _forward(
        self,
        client: ReconnectingClient,
        definition: Definition,
        arguments: Mapping[str, Any],
        report: Report | None,
    ) -> Any:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra

        connection = await client.connected()
        problem = self._problem_of(definition, client.definitions.get(definition.name))
        if problem is not None:
            warn("%s", problem)
            return Err(problem)
        progress = None if report is None else _progress_for(report)
        try:
            result = await connection.client.call_tool(
                definition.name, sendable_json(dict(arguments)), progress_callback=progress
            )
        except MCPError as error:
            if connection.is_alive:
                return Err(f"MCP server {self.name!r}: {redacted(error.message)}")
            reason = f" ({connection.reason})" if connection.reason else ""
            text = (
                f"the MCP server {self.name!r} was lost while {definition.name!r} ran{reason}; whether the call "
                f"had an effect is not known"
            )
            raise MCPConnectionError(text, connection.stderr()) from error
        except (
            ValueError,
            RuntimeError,
        ) as error:  # pydantic's, and the SDK's of another kind of result
            reason = redacted(short_name(safe_str(error)))
            return Err(f"MCP server {self.name!r} returned a result that cannot be read: {reason}")
        # Read here: the loop takes plain data at once, but reads an object in a separate thread.
        content, has_failed = read_call_result(result)
        return Err(content) if has_failed else content

    def _problem_of(self, offered: Definition, current: Definition | None) -> str | None:
        """Why a call must not run; None if the server has the definition that the model was offered."""
        if current is None:
            return f"the MCP server {self.name!r} no longer has the tool {offered.name!r}"
        if current.digest == offered.digest:
            return None
        return (
            f"the MCP server {self.name!r} has changed the definition of {offered.name!r} since it was approved; "
            f"the tool is refused until a person has approved the new one"
        )

    # Resources

    async def resources(self) -> list[JSONDict]:
        """The resources of the server: ``uri``, ``name``, and where given ``description`` and ``mimeType``."""
        return await self._connected_client().call(self._resources)

    def resources_sync(self) -> list[JSONDict]:
        """As `resources`, in this thread."""
        return self._connected_client().client_thread.call_sync(self._resources)

    async def read_resource(self, uri: str) -> list[JSONDict]:
        """Read a resource.

        Args:
            uri: its address.

        Returns:
            Its contents as content parts, which a tool may return and a message may have.

        Raises:
            MCPConnectionError: the server is not connected, or refused the request.
        """
        return await self._connected_client().call(self._read_resource, uri)

    def read_resource_sync(self, uri: str) -> list[JSONDict]:
        """As `read_resource`, in this thread."""
        return self._connected_client().client_thread.call_sync(self._read_resource, uri)

    async def _resources(self) -> list[JSONDict]:
        connection = await self._connected_client().connected()
        found = await self._asked(connection.pages("resources", connection.client.list_resources))
        return [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in found]

    async def _read_resource(self, uri: str) -> list[JSONDict]:
        client: Client = (await self._connected_client().connected()).client
        found = await self._asked(client.read_resource(uri))
        dumped = found.model_dump(mode="json", by_alias=True, exclude_none=True)
        return [resource_part(one) for one in dumped["contents"]]

    async def _asked(self, request: Coroutine[Any, Any, R]) -> R:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - an extra

        try:
            return await request
        except (MCPError, ValueError) as error:  # ValueError: pydantic's, of a malformed response
            raise MCPConnectionError(f"MCP server {self.name!r}: {redacted(str(error))}") from error


class RemoteTool:
    """The function of a tool of a server: it forwards the call.

    Args:
        server: the server.
        definition: the definition that is offered to the model.
    """

    def __init__(self, server: MCPServer, definition: Definition) -> None:
        self.server = server
        self.definition = definition
        self.__name__ = definition.name

    async def __call__(self, **arguments: Any) -> Any:
        """Call the tool at the server."""
        return await self.server.forward(self.definition, arguments, None)

    async def call_in_context(
        self, arguments: Mapping[str, Any], context: ToolContext[Any] | None
    ) -> Any:
        """As a call, with the progress reported to the listeners of the run."""
        report = None if context is None or context.reporter is None else context.report
        return await self.server.forward(self.definition, arguments, report)


def _progress_for(report: Report) -> ProgressFnT:
    async def note(progress: float, total: float | None, message: str | None) -> None:
        share = progress / total if total else None
        report(message or "", share, {"progress": progress, "total": total})

    return note


def _names_of(definitions: Iterable[str]) -> dict[str, str]:
    """The valid names of tools, by their names at the server.

    Names that are alike once they are valid get a part of their digest, except one that was valid already. The
    order of the list does not count.
    """
    made = {name: valid_name(name) for name in definitions}
    counts = Counter(made.values())
    for name, valid in made.items():
        if counts[valid] > 1 and valid != name:
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
            made[name] = f"{valid[: MAX_NAME - 9]}_{digest[:8]}"
    return made


def _names(option: str, given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise OptionError(f"MCPServer: {option}: expected a list of names, got a text")
    return tuple(given)
