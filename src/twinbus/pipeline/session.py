"""Spark sessions: one profile for a laptop and one for a cluster, made before the first JVM starts.

Finding a Java is `java`'s business; what a job does with its session is the job's.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from twinbus.model.extras import needing, require
from twinbus.pipeline.errors import PipelineError
from twinbus.pipeline.java import java_home

with needing("pyspark"):
    import pyspark
    from pyspark.sql import SparkSession

# Four tries for a task: without the number, one lost worker ends a job.
LAPTOP_MASTER = "local[2,4]"
# Errors alone. The gateway's own level is named because Spark talks about it when it differs from the others'.
_QUIET = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_BOTH = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.speculation": "false",  # A second copy of a task would send a second copy of its messages.
    "spark.ui.showConsoleProgress": "false",
}
_LAPTOP = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
}


def open_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None, *, scratch: Path | None = None
) -> SparkSession:
    """A session for this process; without a master, on this machine.

    `settings` win over the profile. `scratch` is where is kept what nobody needs afterwards; without one, in a
    directory that goes with the process.
    """
    require("pyarrow")  # Spark itself asks for it only in its workers, and there nobody reads the answer.
    if SparkSession.getActiveSession() is not None and master is None and not settings:
        return SparkSession.builder.getOrCreate()
    scratch = scratch or _scratch()
    scratch.mkdir(parents=True, exist_ok=True)
    chosen = master or LAPTOP_MASTER
    builder = SparkSession.builder.appName(name).master(chosen)
    for key, value in (profile(chosen, scratch) | dict(settings or {})).items():
        builder = builder.config(key, value)
    surroundings = {
        "JAVA_HOME": str(java_home(os.environ, scratch / "java")),
        # The workers run what the driver runs; who brings another Python along names it.
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable),
    }
    if is_local(chosen) and not {"PYSPARK_PYTHON", "SPARK_HOME"} & os.environ.keys():
        surroundings["SPARK_HOME"] = str(_home_without_archive(scratch / "spark"))
    if is_local(chosen):
        surroundings["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        with _environment(surroundings):
            return builder.getOrCreate()
    except Exception as problem:
        raise PipelineError(f"Spark did not start on '{chosen}': {problem}") from problem


def is_local(master: str) -> bool:
    """Whether everything runs on this machine, in one process or in several."""
    return master.startswith("local")


def profile(master: str, scratch: Path) -> dict[str, str]:
    """The settings for a master: a cluster's own are left alone, a laptop gets those it needs to be quick and quiet."""
    if not is_local(master):
        return dict(_BOTH)
    logging = scratch / "log4j2.properties"
    logging.write_text(_QUIET)
    return {
        **_BOTH,
        **_LAPTOP,
        # Without pandas, which nothing here needs, every function in Python would begin with a warning.
        "spark.sql.execution.pythonUDF.arrow.enabled": str(find_spec("pandas") is not None).lower(),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        # A Java machine that is killed removes nothing of what it has made.
        "spark.local.dir": str(scratch),
        # Spark's first lines come before any setting of a session is read.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging} -Djava.io.tmpdir={scratch}",
    }


def _home_without_archive(place: Path) -> Path:
    """Spark as it is installed, without the archive of its Python part.

    Spark's Python workers look there first, and Python compiles what it finds in an archive anew each time. A worker
    that finds the installed package instead starts three times as fast; Spark gives up one that takes ten seconds.
    """
    installed = Path(pyspark.__path__[0])
    place.mkdir(exist_ok=True)
    for part in ("bin", "sbin", "jars"):
        with suppress(FileExistsError):
            (place / part).symlink_to(installed / part)
    return place


@cache
def _scratch() -> Path:
    found = Path(tempfile.mkdtemp(prefix="twinbus-spark-"))
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    return found


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """What the JVM inherits; the process that starts it keeps its own."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
