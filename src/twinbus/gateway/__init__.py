"""The AMQP door: sockets, links, tokens, management nodes, credit and settlement.

Turns what `amqp` reads from a peer into calls on `entities`, and what entities say into frames; it never sees a store.
"""
