"""Both namespaces' copies of replicated messages as one stream, the first copy of each.

Which copies were seen is judged without Spark in `sightings`.
"""
