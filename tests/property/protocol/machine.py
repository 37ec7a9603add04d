"""Random histories of the protocol: runners, statements, crashes, frozen threads, faults."""

from datetime import timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import PenstockError
from penstock.model.job import DesiredState
from penstock.testing.memory_tables import Fault
from tests.property.protocol.actors import Actor
from tests.property.protocol.checks import check_catalog, check_final_state, check_table
from tests.property.protocol.world import World

STATEMENTS_MAX = 2
# Effects on shared state, directly before which an actor is often stopped.
STOP_POINTS = (
    "handle.commit",
    "handle.commit",
    "handle.commit",
    "handle.refresh",
    "catalog.apply_commit",
    "catalog.acquire_lease",
    "catalog.append",
    "handle.write_copy",
    "tables.open",
    "clock.wait",
    "nowhere",
)
NODES = st.integers(0, 1)
STEPS_MAX = 400
ROUNDS_MAX = 60


class ProtocolMachine(RuleBasedStateMachine):
    """One job on two nodes, with statements and faults at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.kind_by_actor: dict[int, str] = {}
        self.rows_at_pause: int | None = None
        self.dropped: dict[str, int] = {}
        self.saved: bytes | None = None

    def teardown(self) -> None:
        try:
            self.finish_everything()
            check_final_state(self.world)
        finally:
            self.world.close()

    @initialize(files=st.integers(1, 5), until=st.sampled_from(STOP_POINTS))
    def create(self, files: int, until: str) -> None:
        for _ in range(files):
            self.world.files.add()
        self.world.create()
        self.world.nodes[0].supervisor.round()
        self.move(self.world.runners()[0], until)

    @rule()
    def a_file_arrives(self) -> None:
        self.world.files.add()

    @rule(node=st.integers(0, 1))
    def a_node_runs_a_round(self, node: int) -> None:
        self.world.nodes[node].supervisor.round()

    @precondition(lambda self: self.world.runners())
    @rule(data=st.data(), until=st.sampled_from(STOP_POINTS))
    def a_runner_moves(self, data: st.DataObject, until: str) -> None:
        self.move(data.draw(st.sampled_from(self.world.runners()), label="runner"), until)

    @precondition(lambda self: self.world.runners())
    @rule(data=st.data())
    def a_runner_takes_one_step(self, data: st.DataObject) -> None:
        runner = data.draw(st.sampled_from(self.world.runners()), label="runner")
        self.move(runner, runner.at, steps=1)

    @precondition(lambda self: self.world.open_statements())
    @rule(data=st.data(), until=st.sampled_from(STOP_POINTS))
    def a_statement_moves(self, data: st.DataObject, until: str) -> None:
        open_statements = self.world.open_statements()
        self.move(data.draw(st.sampled_from(open_statements), label="statement"), until)

    @rule(data=st.data())
    def a_statement_completes(self, data: st.DataObject) -> None:
        self.start_random_statement(data)
        for statement in self.world.open_statements():
            self.finish(statement)

    @rule(data=st.data())
    def a_statement_starts(self, data: st.DataObject) -> None:
        if len(self.world.open_statements()) < STATEMENTS_MAX:
            self.start_random_statement(data)

    def start_random_statement(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(self.possible_statements()), label="statement")
        if kind in ("resume", "create"):
            self.rows_at_pause = None
        statements = {
            "pause": self.world.pause,
            "resume": self.world.resume,
            "drop": self.world.drop,
            "create": self.world.create,
            "alter": None,
        }
        statement: Any = statements[kind]
        if statement is None:
            key = data.draw(st.sampled_from(self.world.files.keys), label="offset")
            statement = partial(self.world.alter, key)
        self.start_statement(kind, statement)

    @rule(what=st.sampled_from(["late", "late", "lost", "arrive", "arrive", "foreign"]))
    def a_commit_is_disturbed(self, what: str) -> None:
        match what:
            case "late":
                self.world.next_fault = Fault.LATE
            case "lost":
                self.world.next_fault = Fault.LOST_RESPONSE
            case "arrive":
                self.world.tables.apply_late_writes()
            case _:
                self.world.tables.foreign_commit(self.world.table.location)

    @rule(what=st.sampled_from(["crash", "crash statement", "expire", "backup"]), node=NODES)
    def something_breaks(self, what: str, node: int) -> None:
        match what:
            case "crash":
                self.world.nodes[node].crash()
                self.world.nodes[node] = self.world.new_node()
            case "crash statement":
                for statement in self.world.open_statements()[:1]:
                    statement.crash()
            case "expire":
                self.world.clock.advance(timedelta(seconds=20))
                self.world.nodes[node].supervisor._keeper.renew()
            case "backup" if self.saved is None:
                self.saved = self.world.backup()
            case "backup" if not self.world.restored:
                self.world.restore(self.saved or b"")
            case _:
                self.world.clock.advance(timedelta(seconds=3))

    @invariant()
    def check(self) -> None:
        """Check the invariants after a step."""
        replays = check_table(self.world)
        check_catalog(self.world, replays)
        if self.rows_at_pause is not None:
            assert self.row_count() == self.rows_at_pause, (
                "rows were committed after PAUSE returned"
            )
        for job_id, rows in self.dropped.items():
            assert len(replays[job_id].rows) == rows, "rows were committed after DROP returned"

    def move(self, actor: Actor, until: str, *, steps: int = 60) -> None:
        """Run an actor until it stops before an effect of that name."""
        for _ in range(steps):
            actor.step()
            self.record_guarantees(actor)
            self.check()
            if actor.ended or actor.at == until:
                return

    def possible_statements(self) -> list[str]:
        state = self.world.state()
        if state is None:
            return ["create"]
        if state.desired.state is DesiredState.PAUSE:
            return ["resume", "alter", "pause", "drop"]
        return ["pause", "pause", "drop"]

    def start_statement(self, kind: str, statement: Any) -> Actor:
        """Start a statement and store its kind."""
        state = self.world.state()
        self.dropping = state.id if state is not None else ""
        actor = self.world.start_statement(kind, statement)
        self.kind_by_actor[id(actor)] = kind
        return actor

    def record_guarantees(self, actor: Actor) -> None:
        """Store the guarantees of a statement that has returned."""
        kind = self.kind_by_actor.pop(id(actor), "") if actor.ended else ""
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

    def finish_everything(self) -> None:
        """Finish all actors without further faults, then load all remaining files."""
        self.world.next_fault = Fault.NONE
        for statement in self.world.statements:
            self.finish(statement)
        for node in self.world.nodes:
            node.crash()
        self.world.tables.apply_late_writes()
        self.rows_at_pause = None
        self.resume_or_drop()
        self.world.clock.advance(timedelta(seconds=20))
        node = self.world.nodes[0] = self.world.new_node()
        for _ in range(ROUNDS_MAX):
            reports = node.supervisor.round()
            if all(r.progress is not None and r.progress.caught_up for r in reports):
                break
            for actor in [runner for runner in node.runners if not runner.ended]:
                for _ in range(STEPS_MAX // 10):
                    actor.step()
            self.world.clock.advance(timedelta(seconds=2))
            node.supervisor._keeper.renew()
            self.resume_or_drop()

    def resume_or_drop(self) -> None:
        state = self.world.state()
        if state is None:
            return
        if state.desired.state in (DesiredState.DROP, DesiredState.CLOSED):
            self.world.drop()
        elif state.desired.state is DesiredState.PAUSE:
            self.world.resume()

    def finish(self, actor: Actor) -> None:
        for _ in range(STEPS_MAX):
            if actor.ended:
                return
            actor.step()
            self.record_guarantees(actor)
            self.check()
        raise AssertionError(f"{actor.name} does not end; it is before {actor.at}")
