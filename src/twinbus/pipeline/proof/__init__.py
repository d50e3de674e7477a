"""Who had each copy, what was lost, stuck or doubled, and whether the line balances.

Reads journals, send logs, ledgers and what is resident; changes nothing.
"""
