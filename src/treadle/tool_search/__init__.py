"""Tool search: a loop offers the model two fixed tools, which find and call the others, in place of hundreds."""

from treadle.tool_search.catalog import ToolSearch

__all__ = ["ToolSearch"]
