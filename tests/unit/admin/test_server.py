"""Binding the door to a port."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest
from aiohttp import ClientSession, web

from twinbus.admin.server import bound_port, start_http


async def hello(_: web.Request) -> web.Response:
    return web.Response(text="hello")


def greeter() -> web.Application:
    app = web.Application()
    app.router.add_get("/", hello)
    return app


async def test_port_zero_is_any_free_port_and_it_is_told() -> None:
    runner = await start_http(greeter(), "127.0.0.1", 0)
    try:
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{bound_port(runner)}/") as answer:
            assert await answer.text() == "hello"
    finally:
        await runner.cleanup()


async def test_a_port_in_use_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await start_http(greeter(), "127.0.0.1", taken.getsockname()[1])


async def test_what_is_not_http_is_refused_and_leaves_nothing_of_itself_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    runner = await start_http(greeter(), "127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", bound_port(runner))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: SharedAccessSignature sig=secret\0\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 400 ")
        writer.close()
        await writer.wait_closed()
    finally:
        await runner.cleanup()
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text
