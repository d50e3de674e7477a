"""The fixtures of `support.pair_scene` for all tests of this folder."""

from support.disks import small_disk
from support.pair_scene import brokers, pytest_collection_modifyitems, scene

__all__ = ["brokers", "pytest_collection_modifyitems", "scene", "small_disk"]
