"""What machines ask without a key: whether the process lives and is ready, small checks one by one, and the metrics.

Every check is somebody else's; here it is worded. None of them asks another namespace, because the halves of a pair
must not fall out of service together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from aiohttp import web

from twinbus.model.metrics import Numbers
from twinbus.wire.descriptions import timestamp

CHECKS = "/healthz"


class Finding(NamedTuple):
    """What a check has found. The reason names no file and no address: anybody may read it."""

    ok: bool
    reason: str
    since_ms: int | None = None  # Since when it is so, where that is known.


Check = Callable[[], Awaitable[Finding]]
Read = Callable[[], Awaitable[Numbers]]


class Probes:
    """The answers of one process, the same at every namespace's door."""

    def __init__(
        self,
        metrics: Read,
        ready: Callable[[], bool],
        serves: Callable[[], bool],
        checks: Mapping[str, Check],
        doubts: Callable[[], list[str]] = list,
    ) -> None:
        """`ready` while clients may connect; `serves` while one of them could be served; `doubts` what is set aside."""
        self._doubts = doubts
        self._metrics = metrics
        self._ready = ready
        self._serves = serves
        self._checks = checks
        self._answers: dict[str, Callable[[], Awaitable[web.Response]]] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/health": self._health,
            "/metrics": self._metrics_page,
            CHECKS: self._all,
        }

    def answering(self, request: web.Request) -> Awaitable[web.Response] | None:
        """The answer, if a probe is asked: a queue may bear one's name, but clients say which API they speak."""
        if request.method not in ("GET", "HEAD") or "api-version" in request.query:
            return None
        answer = self._answers.get(request.path)
        if answer is not None:
            return answer()
        if not request.path.startswith(f"{CHECKS}/"):
            return None
        check = self._checks.get(request.path.removeprefix(f"{CHECKS}/"))
        return self._none() if check is None else self._one(check)

    async def _livez(self) -> web.Response:
        """The loop has come round to this, and that is all that is asked."""
        return web.Response(text="ok\n")

    async def _readyz(self) -> web.Response:
        if not self._ready():
            return web.Response(status=503, text="The broker is starting or stopping.\n")
        if not self._serves():
            return web.Response(status=503, text="\n".join(["No messaging store is available.", *self._doubts(), ""]))
        return web.Response(text="\n".join(["ok", *self._doubts(), ""]))

    async def _health(self) -> web.Response:
        """As the official emulator, whose users wait for a 200 here."""
        status, word = (200, "healthy") if self._ready() else (503, "unhealthy")
        return web.json_response({"status": word}, status=status)

    async def _metrics_page(self) -> web.Response:
        from twinbus.admin.metrics import CONTENT_TYPE, page

        return web.Response(body=page(await self._metrics()), headers={"Content-Type": CONTENT_TYPE})

    async def _all(self) -> web.Response:
        found = {name: await check() for name, check in self._checks.items()}
        status = 200 if all(finding.ok for finding in found.values()) else 503
        return web.json_response({name: _document(finding) for name, finding in found.items()}, status=status)

    async def _none(self) -> web.Response:
        return web.json_response({"checks": sorted(self._checks)}, status=404)

    async def _one(self, check: Check) -> web.Response:
        found = await check()
        return web.json_response(_document(found), status=200 if found.ok else 503)


def _document(found: Finding) -> dict[str, object]:
    since = None if found.since_ms is None else timestamp(found.since_ms)
    return {"status": "ok" if found.ok else "failing", "reason": found.reason, "since": since}
