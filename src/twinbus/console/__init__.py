"""The console: web pages about a namespace or a pair, made of what the public HTTP interfaces tell.

Imports nothing of the rest: what a page can show, anybody can ask for.
"""

from twinbus.console.pair import Pair, Side
from twinbus.console.site import Console

__all__ = ["Console", "Pair", "Side"]
