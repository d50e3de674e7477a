"""The brokers of `support.pair_scene`, and `support.replicated` and `quick_client`, for all tests of this folder."""

from support.disks import small_disk
from support.pair_scene import brokers
from support.quick_client import quick_client
from support.replicated import twins

__all__ = ["brokers", "quick_client", "small_disk", "twins"]
