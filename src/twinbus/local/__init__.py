"""A pair of namespaces on this machine for daily work: its processes started, found again later, and ended.

The processes are commands of `twinbus` as anybody could start them; what they do is theirs.
"""

from twinbus.local.pair import AMQP_PORT, HTTP_PORT, PORT_STEP, LocalPair
from twinbus.local.processes import Running, StartError

__all__ = ["AMQP_PORT", "HTTP_PORT", "PORT_STEP", "LocalPair", "Running", "StartError"]
