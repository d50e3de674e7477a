"""The fixtures of `support.pair_scene` and `support.closing` for all tests of this folder."""

from support.closing import quick_closing
from support.pair_scene import brokers, scene

__all__ = ["brokers", "quick_closing", "scene"]
