"""A token service, as ACS was: it hands out tokens that live for three hours, and can be taken down.

Beside it the credential of an application that depends on it.
"""

from __future__ import annotations

import asyncio
import http.server
import threading
import time
import urllib.parse
import urllib.request
from math import ceil

from azure.core.credentials import AccessToken

from support.broker import ROOT_POLICY
from twinbus.wire.sas import make_token

LIFETIME_S = 3 * 3600


class TokenService:
    """Signs for whoever asks, while it is up."""

    def __init__(self, key: str, lifetime_s: float = LIFETIME_S) -> None:
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                resource = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["resource"][0]
                service.handed_out += 1
                expires_at = ceil(time.time() + service.lifetime_s)
                body = f"{expires_at} {make_token(resource, ROOT_POLICY, key, expires_at)}".encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Nobody reads it."""

        self.lifetime_s = lifetime_s
        self.handed_out = 0
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """From now on nobody gets a token."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class ServiceCredential:
    """Asks the service for each token, as an application that does not sign for itself must."""

    token_type = b"servicebus.windows.net:sastoken"

    def __init__(self, service: TokenService) -> None:
        self._service = service

    def get_token(self, *scopes: str, **kwargs: object) -> AccessToken:
        query = urllib.parse.urlencode({"resource": scopes[0]})
        with urllib.request.urlopen(f"{self._service.address}/?{query}", timeout=30) as answer:
            expires_at, token = answer.read().decode().split(" ", 1)
        return AccessToken(token, int(expires_at))


class AsyncServiceCredential(ServiceCredential):
    """The same for the asynchronous SDK."""

    async def get_token(self, *scopes: str, **kwargs: object) -> AccessToken:  # type: ignore[override]
        return await asyncio.to_thread(super().get_token, *scopes)

    async def close(self) -> None:
        """Nothing is open."""
