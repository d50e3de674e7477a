"""The brokers of `support.pair_scene`, and `support.replicated` and `support.closing`, for all tests of this folder."""

from support.closing import quick_closing
from support.disks import small_disk
from support.pair_scene import brokers
from support.replicated import twins

__all__ = ["brokers", "quick_closing", "small_disk", "twins"]
