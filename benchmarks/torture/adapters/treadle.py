"""treadle: the adapter that comes with the suite."""

from treadle.testing.torture import TreadleLoop as Adapter

__all__ = ["Adapter"]
