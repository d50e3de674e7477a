"""What an outage and its insurance cost: billable operations counted from the journal, and priced.

Prices are tables with a date beside the code, in `price_tables`.
"""
