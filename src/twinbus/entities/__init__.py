"""What an entity does with a message: the namespace's catalog, its queues, and the feeding of receivers.

Speaks to messaging stores through a port and knows neither AMQP nor sockets; `gateway` and `admin` are its doors.
"""
