"""Order through an outage as a table: a session's writer, a backlog, a syphon and restarts, by random schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from twinbus.pair.order.table import PLACES, Place, Sign, index_of, path, session_of
from twinbus.pair.route.health import Route
from twinbus.pair.route.router import Answer, Situation, Step, next_step


def first_step(place: Place, route: Route) -> Step:
    """Where a send of an ordered session begins."""
    return next_step(Step.BEGIN, Answer.READY, Situation(route, must_look=place is not Place.HOME))


def test_every_place_has_a_place_after_every_sign() -> None:
    assert set(PLACES) == set(product(Place, Sign))


def test_only_a_session_that_is_known_to_be_home_is_sent_straight_to_the_primary() -> None:
    assert [place for place in Place if first_step(place, Route.PRIMARY) is Step.PRIMARY] == [Place.HOME]
    assert {first_step(place, Route.BACKLOG) for place in Place} == {Step.BACKLOG}
    assert {first_step(place, Route.NOWHERE) for place in Place} == {Step.GIVE_UP}
    assert [sign for sign in Sign if PLACES[Place.BEHIND, sign] is Place.HOME] == [Sign.NONE_THERE]


def test_a_session_is_found_again_for_ever() -> None:
    """What is stored by this rule must be found by it again: these values never change."""
    session = session_of("Orders", "cart-1")
    assert session == session_of("orders", "cart-1") != session_of("orders", "Cart-1")
    assert session == "f4d446f0ea63bdcf549504660b6b95f5b8f34799dd0f285f89b110e85305489e"
    assert index_of(session, 10) == 5
    assert {index_of(session_of("orders", str(each)), 10) for each in range(200)} == set(range(10))
    assert path("contoso", 3) == "contoso/x-servicebus-transfer-ordered/3"


@dataclass
class World:
    """One session: its writer and where its messages are. Sends may fail after they arrived."""

    random: Random
    place: Place = Place.UNKNOWN
    primary_up: bool = True
    route: Route = Route.PRIMARY
    backlog: list[int] = field(default_factory=list)
    home: list[int] = field(default_factory=list)
    sent_not_completed: bool = False
    next: int = 0

    def send(self) -> None:
        """One attempt at the next message; the writer goes on to the one after it when it is acknowledged."""
        step = first_step(self.place, self.route)
        if step is Step.LOOK:
            self.place = PLACES[self.place, Sign.SOME_THERE if self.backlog else Sign.NONE_THERE]
            answer = Answer.SOME_THERE if self.backlog else Answer.NONE_THERE
            step = next_step(step, answer, Situation(self.route, must_look=self.place is not Place.HOME))
        if step is Step.PRIMARY:
            if self.primary_up:
                self.home.append(self.next)
            if not self.primary_up or self.random.random() < 0.2:  # The answer may be lost.
                return
        elif step is Step.BACKLOG:
            self.place = PLACES[self.place, Sign.DIVERTING]
            if self.random.random() < 0.2:
                return
            self.backlog.append(self.next)
            if self.random.random() < 0.2:
                return
        else:
            return
        self.next += 1

    def syphon(self) -> None:
        """Send, then complete; killed in between, it sends again."""
        if self.backlog and self.primary_up:
            if not self.sent_not_completed:
                self.home.append(self.backlog[0])
                self.sent_not_completed = True
            else:
                del self.backlog[0]
                self.sent_not_completed = False

    def syphon_dies(self) -> None:
        self.sent_not_completed = False

    def fail(self) -> None:
        self.primary_up = False

    def fail_over(self) -> None:
        if not self.primary_up:
            self.route = Route.BACKLOG

    def heal(self) -> None:
        self.primary_up, self.route = True, Route.PRIMARY

    def restart(self) -> None:
        self.place, self.route = Place.UNKNOWN, Route.PRIMARY


EVENTS = ("send", "send", "syphon", "syphon", "syphon_dies", "fail", "fail_over", "heal", "restart")


@settings(max_examples=500)
@given(st.integers(0, 2**32), st.lists(st.sampled_from(EVENTS), max_size=200))
def test_whatever_happens_first_copies_arrive_in_order_and_none_is_lost(seed: int, schedule: list[str]) -> None:
    world = World(Random(seed))
    for event in schedule:
        getattr(world, event)()
    world.heal()
    while world.backlog:
        world.syphon()

    first = list(dict.fromkeys(world.home))
    assert first == sorted(first)
    assert set(range(world.next)) <= set(first)
