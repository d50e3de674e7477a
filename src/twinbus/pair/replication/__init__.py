"""The same message in two namespaces: sent to both or to one, received once.

What counts as a copy is decided by `ledger`.
"""
