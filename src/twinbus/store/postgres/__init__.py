"""The messaging store in PostgreSQL: the same commands, shared by several gateways at once.

The rules of each command are those of the modules above; here stands how they read and write rows that others use too.
"""

from twinbus.model.extras import needing

with needing("psycopg"):
    import psycopg as psycopg  # All modules here use it: whoever imports one of them learns what is missing.
