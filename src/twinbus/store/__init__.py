"""Messaging stores: durable queues as named transactions, and the journal written with them.

A store knows entities by number and messages as opaque records; it knows neither AMQP nor the gateway.
"""
