"""Relay replication: a service listens at two relays, one of them is killed under its callers, and their calls go on.

`python examples/relay_replication.py` starts two namespaces of its own. In earnest they are two addresses with keys.
"""

import asyncio
from collections import Counter

from twinbus.relay import RelayClient, RelayedRequest, RelayedResponse, RelayEndpoint, RelayListener
from twinbus.testing import LocalNamespace, pair


def endpoint(namespace: LocalNamespace, name: str) -> RelayEndpoint:
    """A hybrid connection of that name, and the key to it."""
    namespace.call("PUT", f"hybrid-connections/{name}", {})
    fields = dict(field.split("=", 1) for field in namespace.connection_string.split(";") if field)
    address = f"http://127.0.0.1:{namespace.http_port}/{name}"
    return RelayEndpoint(address, fields["SharedAccessKeyName"], fields["SharedAccessKey"])


async def confirm(request: RelayedRequest) -> RelayedResponse:
    """The service, which could be any ASGI or aiohttp application: see `twinbus.relay.serving`."""
    order = request.target.rpartition("/")[2].encode()
    return RelayedResponse(200, b"order " + order + b": " + await request.read())


async def main() -> None:
    with pair() as (primary, secondary):
        endpoints = [endpoint(primary, "myPrimaryService"), endpoint(secondary, "mySecondaryService")]
        answered: Counter[str] = Counter()
        async with RelayListener(endpoints, confirm) as listener, RelayClient(*endpoints) as client:
            await listener.listening()
            killed = client.active.path
            for number in range(20):
                if number == 10:
                    (primary if killed == "myPrimaryService" else secondary).kill()
                # PUT is idempotent, so that a call which may have arrived is issued again by itself.
                response = await client.request("PUT", f"orders/{number}", body=b"confirmed")
                assert response.body == f"order {number}: confirmed".encode()
                answered[endpoints[response.endpoint].path] += 1
        print(f"answered through the relay that was killed: {answered[killed]}")
        print(f"answered through the other one: {answered.total() - answered[killed]}")


if __name__ == "__main__":
    asyncio.run(main())
