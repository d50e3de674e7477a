"""Work on many messages that takes a while: counting, sending back or removing those that a condition chooses.

A job goes on without whoever began it, tells how far it is, and can be ended. Kept in memory: a restart ends it, with
every message in one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from twinbus.admin.asked import Asked, Document
from twinbus.admin.browsing import SUB_QUEUES, mailbox_of, pages
from twinbus.admin.faults import HttpError
from twinbus.entities import purging, redriving
from twinbus.entities.entity import AnyEntity
from twinbus.entities.namespace import Namespace
from twinbus.entities.wanted import Wanted
from twinbus.model.address import SubQueue
from twinbus.model.errors import BusError, Fault
from twinbus.model.logged import EventLog
from twinbus.model.message import Origin

WORKS = ("count", "redrive", "purge")
RUNNING_MAX = 8
KEPT_MAX = 50
ORIGIN = Origin("http", "job")

log = EventLog("twinbus.admin")


@dataclass(eq=False, slots=True)
class Job:
    """One piece of work; `done` messages were chosen and dealt with, `kept` were looked at and stay."""

    number: int
    work: str
    entity: str
    sub_queue: str
    condition: str
    total: int  # Messages that were there when it began.
    began_at_ms: int
    state: str = "running"
    done: int = 0
    kept: int = 0
    ended_at_ms: int | None = None
    problem: str | None = None
    task: asyncio.Task[None] | None = None

    def told(self, done: int, kept: int) -> None:
        """How far it is."""
        self.done, self.kept = done, kept


class JobRoutes:
    """The routes about jobs."""

    def __init__(self, namespace: Namespace, now_ms: Callable[[], int], instant: Callable[[int], str]) -> None:
        self._namespace = namespace
        self._now_ms = now_ms
        self._instant = instant
        self._jobs: dict[int, Job] = {}
        self._last = 0
        self.routes: dict[tuple[str, str], Callable[[Asked], Awaitable[Document]]] = {
            ("GET", "jobs"): self._list,
            ("POST", "jobs"): self._begin,
            ("GET", r"jobs/(\d{1,9})"): self._one,
            ("DELETE", r"jobs/(\d{1,9})"): self._end,
        }

    async def _list(self, asked: Asked) -> Document:
        return {"jobs": [self._document(job) for job in reversed(self._jobs.values())]}

    async def _one(self, asked: Asked) -> Document:
        return self._document(self._named(asked))

    async def _end(self, asked: Asked) -> Document:
        job = self._named(asked)
        if job.task is not None and not job.task.done():
            job.task.cancel()
            await asyncio.wait([job.task])
        return self._document(job)

    async def _begin(self, asked: Asked) -> Document:
        given = {key: asked.body.pop(key, "") for key in ("work", "entity", "sub_queue", "filter")}
        if asked.body or not all(isinstance(value, str) for value in given.values()):
            raise BusError(Fault.ARGUMENT, "A job has 'work', 'entity', 'sub_queue' and 'filter', each a text.")
        if given["work"] not in WORKS:
            raise BusError(Fault.ARGUMENT, f"'work' must be one of {', '.join(WORKS)}.")
        name = given["sub_queue"] or "dead-letter"
        if name not in SUB_QUEUES:
            raise BusError(Fault.ARGUMENT, f"'sub_queue' must be one of {', '.join(SUB_QUEUES)}.")
        entity, sub_queue, condition = self._namespace.entity(given["entity"]), SUB_QUEUES[name], given["filter"]
        mailbox_of(entity, sub_queue)
        Wanted(condition or None, self._namespace.reader)  # One that cannot be is refused at once.
        if given["work"] != "count" and condition and sub_queue is SubQueue.MAIN:
            raise BusError(Fault.ARGUMENT, "Messages are chosen by a condition among dead letters only.")
        if given["work"] == "redrive" and sub_queue is SubQueue.MAIN:
            raise BusError(Fault.ARGUMENT, "Only dead letters can be sent back; they are not in the main queue.")
        if sum(job.state == "running" for job in self._jobs.values()) >= RUNNING_MAX:
            raise BusError(Fault.SERVER_BUSY, f"{RUNNING_MAX} jobs are running already.")
        total = await _held(entity, sub_queue)
        self._last += 1
        job = Job(self._last, given["work"], entity.path, name, condition, total, self._now_ms())
        self._jobs[job.number] = job
        self._forget()
        job.task = asyncio.create_task(self._run(job, entity, sub_queue))
        # Most are done at once, and whoever asked need not ask again.
        await asyncio.wait([job.task], timeout=0.1)
        return self._document(job)

    async def _run(self, job: Job, entity: AnyEntity, sub_queue: SubQueue) -> None:
        try:
            await self._work(job, entity, sub_queue)
            job.state = "done"
        except asyncio.CancelledError:
            job.state = "ended"
        except BusError as error:
            job.state, job.problem = "failed", error.text
        except Exception:
            log.exception("job.failed", "a job failed: {work} of '{entity}'", work=job.work, entity=job.entity)
            job.state, job.problem = "failed", "The broker failed at it; its log has the reason."
        job.ended_at_ms = self._now_ms()

    async def _work(self, job: Job, entity: AnyEntity, sub_queue: SubQueue) -> None:
        if job.work == "count":
            await self._count(job, entity, sub_queue)
        elif job.work == "purge" and not job.condition:
            job.done = await purging.purge(entity, sub_queue, self._namespace.clock.now_ms(), ORIGIN)
        else:
            removes = job.work == "purge"
            finished = await redriving.redrive(
                self._namespace,
                entity,
                sub_queue,
                job.condition or None,
                None,
                ORIGIN,
                told=job.told,
                removes=removes,
            )
            job.told(finished.moved, finished.kept)

    async def _count(self, job: Job, entity: AnyEntity, sub_queue: SubQueue) -> None:
        if not job.condition:
            job.done = job.total
            return
        wanted = Wanted(job.condition, self._namespace.reader)
        async for page in pages(mailbox_of(entity, sub_queue), 0):
            chosen = sum(map(wanted.includes, page))
            job.told(job.done + chosen, job.kept + len(page) - chosen)

    def _named(self, asked: Asked) -> Job:
        job = self._jobs.get(int(asked.open[0]))
        if job is None:
            raise HttpError(404, "There is no such job any more.")
        return job

    def _forget(self) -> None:
        """Only so many are remembered; those that run are not forgotten."""
        ended = [number for number, job in self._jobs.items() if job.state != "running"]
        for number in ended[: max(0, len(self._jobs) - KEPT_MAX)]:
            del self._jobs[number]

    def _document(self, job: Job) -> Document:
        return {
            "number": job.number,
            "work": job.work,
            "entity": job.entity,
            "sub_queue": job.sub_queue,
            "filter": job.condition,
            "state": job.state,
            "total": job.total,
            "done": job.done,
            "kept": job.kept,
            "problem": job.problem,
            "began_at": self._instant(job.began_at_ms),
            "ended_at": None if job.ended_at_ms is None else self._instant(job.ended_at_ms),
        }


async def _held(entity: AnyEntity, sub_queue: SubQueue) -> int:
    counts = await entity.counts()
    if sub_queue is SubQueue.DEAD_LETTER:
        return counts.dead_letter
    if sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
        return counts.transfer_dead_letter
    return counts.active + counts.deferred + counts.scheduled
