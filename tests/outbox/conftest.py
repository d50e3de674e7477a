"""The fixtures of `support.pair_scene` and `support.closing` for all tests of this folder."""

from support.closing import quick_closing
from support.disks import small_disk
from support.pair_scene import brokers, pytest_collection_modifyitems, scene

__all__ = ["brokers", "pytest_collection_modifyitems", "quick_closing", "scene", "small_disk"]
