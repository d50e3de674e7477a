"""Faults on purpose: a proxy that delays, swallows and cuts, for tests and drills.

What must be survived is decided by whoever uses it.
"""
