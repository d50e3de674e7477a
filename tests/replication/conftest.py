"""The brokers of `support.pair_scene` and the fixtures of `support.replicated` for all tests of this folder."""

from support.disks import small_disk
from support.pair_scene import brokers, pytest_collection_modifyitems
from support.replicated import twins

__all__ = ["brokers", "pytest_collection_modifyitems", "small_disk", "twins"]
