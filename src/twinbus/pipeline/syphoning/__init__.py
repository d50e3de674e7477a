"""The backlog brought home by Spark tasks, each in the order send, acknowledgement, complete.

What is done with one message is told in `pair.syphon`; here it is done by many, in rounds.
"""
