"""Outages on purpose, and the proof afterwards: two namespaces, a paired client, and a count of what became of it all.

The brokers are processes as a user would start them; loss is judged from a log that the sender itself writes.
"""
