"""Models for `Loop`, by name. A provider is an entry point; it imports its SDK when it is used."""

from treadle.model import Provider, add_alias, backend, providers
from treadle.providers.json_tools import JSONToolModel

__all__ = ["JSONToolModel", "Provider", "add_alias", "backend", "providers"]
