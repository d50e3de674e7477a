"""The words of Twinbus: messages, entity descriptions, addresses, outcomes, limits, errors and the clock.

Knows nothing of AMQP, asyncio or disks; every other package may import it, and it imports none of them.
"""
