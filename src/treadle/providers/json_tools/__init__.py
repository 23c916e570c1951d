"""Tool calls as JSON text, for models without native tool use."""

from treadle.providers.json_tools.conversation import plain_messages
from treadle.providers.json_tools.model import JSONToolModel, constraint
from treadle.providers.json_tools.offer import Offer, offer_of
from treadle.providers.json_tools.reply import translated

__all__ = ["JSONToolModel", "Offer", "constraint", "offer_of", "plain_messages", "translated"]
