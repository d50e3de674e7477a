"""The credential of somebody who depends on a token service: it asks early, and keeps what it has until that ends."""

from __future__ import annotations

import asyncio
import time

import aiohttp
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

from twinbus.drill.tokens import ServiceCredential, Signer, TokenService
from twinbus.wire import sas

KEY = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=p;SharedAccessKey=c2VjcmV0;UseDevelopmentEmulator=true"


class Asking(ServiceCredential):
    """Gets tokens that live for so long, while the service is there."""

    def __init__(self, life_s: float) -> None:
        super().__init__(TokenService({}), "primary")
        self.life_s = life_s
        self.is_there = True
        self.asked = 0

    async def _fetch(self, resource: str, now: float) -> AccessToken:
        self.asked += 1
        if not self.is_there:
            raise aiohttp.ClientError("nobody is there")
        token = AccessToken(f"token {self.asked}", int(now + self.life_s))
        self._kept[resource] = token, now
        return token


async def test_a_good_token_is_kept_for_each_resource() -> None:
    credential = Asking(life_s=100)

    tokens = [(await credential.get_token(resource)).token for resource in ("a", "a", "b", "a")]

    assert tokens == ["token 1", "token 1", "token 2", "token 1"]


async def test_an_old_token_is_renewed_or_used_until_it_ends() -> None:
    credential = Asking(life_s=100)
    now = time.time()
    credential._kept["a"] = AccessToken("old", int(now + 20)), now - 80
    credential.is_there = False

    assert (await credential.get_token("a")).token == "old"
    credential.is_there = True
    assert (await credential.get_token("a")).token == "token 2"


async def test_without_a_token_there_is_an_error_of_authentication() -> None:
    credential = Asking(life_s=100)
    now = time.time()
    credential._kept["a"] = AccessToken("ended", int(now - 1)), now - 100
    credential.is_there = False

    with pytest.raises(ClientAuthenticationError, match="token service"):
        await credential.get_token("a")
    assert credential.refused == 1


def test_a_signer_signs_what_a_broker_can_check() -> None:
    signer = Signer(KEY, life_s=10)

    token = asyncio.run(signer.get_token("sb://127.0.0.1/orders"))

    assert 5 <= token.expires_on - time.time() <= 10
    assert sas.verify(sas.parse(token.token), ["c2VjcmV0"])
    assert signer.signed == 1
