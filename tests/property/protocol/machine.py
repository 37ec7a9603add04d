"""Random histories of the protocol: runners, statements, crashes, freezes, faults."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import PenstockError
from penstock.model.job import Wish
from penstock.testing import Fault
from tests.property.protocol.actors import Actor
from tests.property.protocol.checks import check_at_rest, check_catalog, check_table
from tests.property.protocol.world import World

STATEMENTS_MAX = 2
# Where an actor is often left standing: right before an effect that others can see.
STANDS = (
    "handle.commit",
    "handle.refresh",
    "catalog.apply_commit",
    "catalog.take_lease",
    "catalog.append",
    "handle.write_copy",
    "tables.open",
    "clock.wait",
    "nowhere",
)
STEPS_MAX = 400
ROUNDS_MAX = 60


class ProtocolMachine(RuleBasedStateMachine):
    """One job, two nodes, and everything that may come between."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.kind_of: dict[int, str] = {}
        self.rows_at_pause: int | None = None
        self.dropped: dict[str, int] = {}
        self.saved: bytes | None = None

    def teardown(self) -> None:
        self.world.close()

    @initialize(files=st.integers(1, 5))
    def create(self, files: int) -> None:
        for _ in range(files):
            self.world.files.add()
        self.world.create()

    @rule()
    def a_file_arrives(self) -> None:
        self.world.files.add()

    @rule(node=st.integers(0, 1))
    def a_node_makes_a_round(self, node: int) -> None:
        self.world.nodes[node].supervisor.round()

    @precondition(lambda self: self.world.actors())
    @rule(data=st.data(), until=st.sampled_from(STANDS), steps=st.integers(1, 60))
    def somebody_moves(self, data: st.DataObject, until: str, steps: int) -> None:
        actor = data.draw(st.sampled_from(self.world.actors()), label="actor")
        for _ in range(steps):
            actor.step()
            self.hold_promises(actor)
            self.check()
            if actor.ended or actor.at == until:
                return

    @rule(node=st.integers(0, 1))
    def a_node_crashes(self, node: int) -> None:
        self.world.nodes[node].crash()
        self.world.nodes[node] = self.world.new_node()

    @precondition(lambda self: any(not s.ended for s in self.world.statements))
    @rule()
    def a_statement_crashes(self) -> None:
        next(s for s in self.world.statements if not s.ended).crash()

    @rule(seconds=st.sampled_from([3, 20]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(timedelta(seconds=seconds))

    @rule(node=st.integers(0, 1))
    def a_node_renews_its_leases(self, node: int) -> None:
        self.world.nodes[node].supervisor._keeper.renew()

    @rule(fault=st.sampled_from([Fault.LATE, Fault.LOST_ANSWER]))
    def the_next_commit_goes_wrong(self, fault: Fault) -> None:
        self.world.next_fault = fault

    @rule()
    def late_writes_arrive(self) -> None:
        self.world.tables.land_late_writes()

    @rule()
    def somebody_else_commits(self) -> None:
        self.world.tables.foreign_commit(self.world.table.location)

    @precondition(lambda self: self.may_say() and self.state_is(Wish.RUN, Wish.PAUSE))
    @rule()
    def pause_is_said(self) -> None:
        self.say("pause", self.world.pause)

    @precondition(lambda self: self.may_say() and self.state_is(Wish.PAUSE))
    @rule()
    def resume_is_said(self) -> None:
        self.rows_at_pause = None
        self.say("resume", self.world.resume)

    @precondition(lambda self: self.may_say() and self.state_is(Wish.PAUSE))
    @rule(data=st.data())
    def alter_is_said(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.world.files.keys), label="offset")
        self.say("alter", lambda: self.world.alter(key))

    @precondition(lambda self: self.may_say() and self.world.state() is not None)
    @rule()
    def drop_is_said(self) -> None:
        self.say("drop", self.world.drop)

    @precondition(lambda self: self.may_say() and self.world.state() is None)
    @rule()
    def create_is_said(self) -> None:
        self.rows_at_pause = None
        self.say("create", self.world.create)

    @precondition(lambda self: self.saved is None)
    @rule()
    def the_catalog_is_backed_up(self) -> None:
        self.saved = self.world.backup()

    @precondition(lambda self: self.saved is not None and not self.world.restored)
    @rule()
    def the_catalog_is_rolled_back(self) -> None:
        assert self.saved is not None
        self.world.restore(self.saved)

    @rule()
    def everything_comes_to_rest(self) -> None:
        self.come_to_rest()
        check_at_rest(self.world)

    @invariant()
    def check(self) -> None:
        """Check what holds after every step."""
        replays = check_table(self.world)
        check_catalog(self.world, replays)
        if self.rows_at_pause is not None:
            assert self.row_count() == self.rows_at_pause, "rows appeared after PAUSE returned"
        for job_id, rows in self.dropped.items():
            assert len(replays[job_id].rows) == rows, "rows appeared after DROP returned"

    def may_say(self) -> bool:
        return sum(not s.ended for s in self.world.statements) < STATEMENTS_MAX

    def state_is(self, *wishes: Wish) -> bool:
        state = self.world.state()
        return state is not None and state.wish.wish in wishes

    def say(self, kind: str, statement: Any) -> None:
        state = self.world.state()
        self.dropping = state.id if state is not None else ""
        actor = self.world.say(kind, statement)
        self.kind_of[id(actor)] = kind

    def hold_promises(self, actor: Actor) -> None:
        """Remember what a statement promised by returning."""
        kind = self.kind_of.pop(id(actor), "") if actor.ended else ""
        assert actor.error is None or isinstance(actor.error, PenstockError), actor.error
        if not kind or actor.error is not None:
            return
        alone = all(s.ended for s in self.world.statements)
        if kind == "pause" and alone:
            self.rows_at_pause = self.row_count()
            state = self.world.state()
            assert state is not None
            assert state.number == len(self.world.chain(state.id)), "SHOW is wrong after PAUSE"
        if kind == "drop" and alone and self.dropping in self.world.job_ids:
            replays = check_table(self.world)
            self.dropped[self.dropping] = len(replays[self.dropping].rows)

    def row_count(self) -> int:
        return len(self.world.tables.rows(self.world.table.location))

    def come_to_rest(self) -> None:
        """Let everybody finish without further faults, then load what is left."""
        self.world.next_fault = Fault.NONE
        for statement in self.world.statements:
            self.finish(statement)
        for node in self.world.nodes:
            node.crash()
        self.world.tables.land_late_writes()
        self.rows_at_pause = None
        self.settle_wish()
        self.world.clock.advance(timedelta(seconds=20))
        node = self.world.nodes[0] = self.world.new_node()
        for _ in range(ROUNDS_MAX):
            looks = node.supervisor.round()
            if all(look.progress is not None and look.progress.caught_up for look in looks):
                break
            for actor in [runner for runner in node.runners if not runner.ended]:
                for _ in range(STEPS_MAX // 10):
                    actor.step()
            self.world.clock.advance(timedelta(seconds=2))
            node.supervisor._keeper.renew()
            self.settle_wish()

    def settle_wish(self) -> None:
        state = self.world.state()
        if state is None:
            return
        if state.wish.wish in (Wish.DROP, Wish.CLOSED):
            self.world.drop()
        elif state.wish.wish is Wish.PAUSE:
            self.world.resume()

    def finish(self, actor: Actor) -> None:
        for _ in range(STEPS_MAX):
            if actor.ended:
                return
            actor.step()
            self.hold_promises(actor)
        raise AssertionError(f"{actor.name} does not end; it stands at {actor.at}")
