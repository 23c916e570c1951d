"""Models for `Loop`, by name. A provider is an entry point; it imports its SDK when it is used."""

from treadle.model import add_alias, backend, embedder
from treadle.model.registry import Embedder, Provider, aliases, providers
from treadle.providers.json_tools import JSONToolModel
from treadle.providers.prices import Prices
from treadle.providers.roles import Roles

__all__ = [
    "Embedder",
    "JSONToolModel",
    "Prices",
    "Provider",
    "Roles",
    "add_alias",
    "aliases",
    "backend",
    "embedder",
    "providers",
]
