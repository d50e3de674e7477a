"""The rule language of topics: correlation filters, SQL filters and SQL actions, parsed, compiled and evaluated.

Pure: knows no AMQP, no store and no clock; the entities build the view of a message and act on what matched.
"""
