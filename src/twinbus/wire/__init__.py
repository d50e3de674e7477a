"""Service Bus over AMQP: messages, outcomes, conditions, `$management` and `$cbs` shapes, SAS, addresses.

Bytes and values in, values and bytes out; links, sockets and what is done about it are left to the gateway.
"""
