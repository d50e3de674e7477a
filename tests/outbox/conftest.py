"""The fixtures of `support.pair_scene` and `support.quick_client` for all tests of this folder."""

from support.disks import small_disk
from support.pair_scene import brokers, scene
from support.quick_client import quick_client

__all__ = ["brokers", "quick_client", "scene", "small_disk"]
