"""Tool search: a loop offers the model two fixed tools, which find and call the others, in place of hundreds.

The core knows the protocols of `treadle.tools.catalog` alone.
"""

from treadle.tool_search.catalog import ToolSearch

__all__ = ["ToolSearch"]
