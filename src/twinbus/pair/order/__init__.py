"""Messages of a session or key stay in order through an outage.

Messages without a session or key are left to `backlog`.
"""
