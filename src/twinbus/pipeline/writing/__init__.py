"""From Spark into Service Bus: the writers behind `df.write` and `df.writeStream`.

A task counts as done when every one of its messages was acknowledged, set aside or given up with a reason.
"""
