"""The data pipeline, on Spark through PySpark: source and sink, syphon, merge, capture, reconcile and cost.

Needs the `spark` extra. Spark moves, merges and proves; no sender ever waits for it.
"""
