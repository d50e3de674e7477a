"""Bringing home what was diverted.

Diverting is left to `backlog`.
"""
