"""Threads that run one at a time, step by step, as a test says.

An actor stops before every effect on something shared. The test lets it take one step, leaves
it frozen for as long as it likes, or crashes it where it stands.
"""

import threading
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 60.0


class Crashed(BaseException):
    """Raised inside an actor where the test crashes it; no product code catches it."""


class Actor:
    """One thread that moves only when the test lets it."""

    def __init__(self, name: str, run: Callable[[], Any]) -> None:
        self.name = name
        self.ended = False
        self.at = "begin"
        self.answer: Any = None
        self.error: Exception | None = None
        self._crash = False
        self._go = threading.Semaphore(0)
        self._halted = threading.Semaphore(0)
        self._run = run
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)
        self.thread.start()
        self._wait_for_halt()

    def step(self) -> None:
        """Let the actor do one effect and go on to the next."""
        if self.ended:
            return
        self._go.release()
        self._wait_for_halt()
        if not self.thread.is_alive() or self.at == "end":
            self.thread.join()

    def crash(self) -> None:
        """End the actor where it stands."""
        if self.ended:
            return
        self._crash = True
        self.step()

    def halt(self, at: str) -> None:
        """Stop before an effect until the test lets us go on; called by the actor's thread."""
        self.at = at
        self._halted.release()
        assert self._go.acquire(timeout=PATIENCE_SECONDS), f"{self.name} was forgotten at {at}"
        if self._crash:
            raise Crashed

    def _live(self) -> None:
        _current.actor = self
        try:
            self.halt("begin")
            self.answer = self._run()
        except Crashed:
            self.answer = None
        except Exception as error:  # noqa: BLE001 - The test looks at it.
            self.error = error
        self.ended = True
        self.at = "end"
        self._halted.release()

    def _wait_for_halt(self) -> None:
        assert self._halted.acquire(timeout=PATIENCE_SECONDS), f"{self.name} hangs at {self.at}"


_current = threading.local()


def halt_here(at: str) -> None:
    """Stop the calling actor before an effect; the test's own thread just goes on."""
    actor: Actor | None = getattr(_current, "actor", None)
    if actor is not None:
        actor.halt(at)


class Stepping:
    """A part whose every call is one step of the actor that makes it."""

    def __init__(self, part: Any, *, name: str) -> None:
        self._part = part
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._part, attribute)
        if not callable(value):
            return value

        def stepping(*args: Any, **kwargs: Any) -> Any:
            halt_here(f"{self._name}.{attribute}")
            answer = value(*args, **kwargs)
            return Stepping(answer, name="handle") if attribute == "open" else answer

        return stepping
