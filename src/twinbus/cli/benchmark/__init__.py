"""What `twinbus bench` needs beside the load itself: a broker of its own, facts about the machine, and the report.

The load is `client.load`'s; the options and the order of the phases are in `cli.bench`.
"""
