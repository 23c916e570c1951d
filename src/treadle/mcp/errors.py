"""The exceptions of this package."""

from __future__ import annotations

from treadle.errors import TreadleError


class MCPConnectionError(TreadleError, ConnectionError):
    """A server could not be started or reached, or was lost while a call ran.

    Args:
        text: what happened.
        stderr: the last lines that the process wrote there; they are part of the text of the exception.
    """

    def __init__(self, text: str, stderr: str = "") -> None:
        super().__init__(f"{text}\nstderr:\n{stderr}" if stderr else text)
        self.text = text
        self.stderr = stderr


class ToolNotApprovedError(TreadleError):
    """The definition of a tool is not the one that was approved, or none was approved.

    Args:
        text: what to do.
        tools: the names of these tools at their server.
    """

    def __init__(self, text: str, tools: tuple[str, ...]) -> None:
        super().__init__(text)
        self.tools = tools
