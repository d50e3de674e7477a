"""`twinbus pipeline`: the jobs that run on Spark, one module for each command, joined here.

The work is done in `twinbus.pipeline`. None of the modules imports pyspark before its command runs, so that help and
all other commands start without it.
"""

from __future__ import annotations

import typer

from twinbus.cli.pipeline_capture import capture
from twinbus.cli.pipeline_cost import cost
from twinbus.cli.pipeline_merge import merge
from twinbus.cli.pipeline_reconcile import reconcile
from twinbus.cli.pipeline_release import release
from twinbus.cli.pipeline_syphon import syphon

pipeline = typer.Typer(
    name="pipeline", help="Jobs on Spark: bring home, merge, capture, reconcile, reckon.", no_args_is_help=True
)
pipeline.command("syphon")(syphon)
pipeline.command("merge")(merge)
pipeline.command("capture")(capture)
pipeline.command("cost")(cost)
pipeline.command("reconcile")(reconcile)
pipeline.command("release")(release)
