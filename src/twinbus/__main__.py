"""`python -m twinbus` is the `twinbus` command.

Everything is in `twinbus.cli`; this only starts it.
"""

from twinbus.cli import main

main()
