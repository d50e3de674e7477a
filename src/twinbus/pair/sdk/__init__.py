"""The official azure-servicebus: the only folder that imports it.

Decisions are left to the folders beside it.
"""
