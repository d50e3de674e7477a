"""From Service Bus into Spark: the readers behind `spark.read` and `spark.readStream`.

`source` browses and takes nothing; `streaming` takes under lock, keeps segments, completes what Spark committed.
"""
