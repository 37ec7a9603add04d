"""Threads that a test runs one at a time, step by step.

An actor stops before every effect on shared state. The test then runs one more step, keeps the
actor frozen, or crashes it at that point.
"""

import threading
from collections.abc import Callable
from typing import Any

TIMEOUT_SECONDS = 60.0


class Crashed(BaseException):
    """The exception with which a test crashes an actor; no product code catches it."""


class Actor:
    """A thread that runs only when the test calls ``step``."""

    def __init__(self, name: str, run: Callable[[], Any]) -> None:
        self.name = name
        self.ended = False
        self.at = "start"
        self.result: Any = None
        self.error: Exception | None = None
        self._crash = False
        self._go = threading.Semaphore(0)
        self._halted = threading.Semaphore(0)
        self._run = run
        self.thread = threading.Thread(target=self._live, name=name, daemon=True)
        self.thread.start()
        self._wait_for_halt()

    def step(self) -> None:
        """Run the actor through one effect, up to the next effect."""
        if self.ended:
            return
        self._go.release()
        self._wait_for_halt()
        if not self.thread.is_alive() or self.at == "end":
            self.thread.join()

    def crash(self) -> None:
        """End the actor at its current point."""
        if self.ended:
            return
        self._crash = True
        self.step()

    def halt(self, at: str) -> None:
        """Stop before an effect until the next step; called by the actor's thread."""
        self.at = at
        self._halted.release()
        assert self._go.acquire(timeout=TIMEOUT_SECONDS), (
            f"the test never continued {self.name} at {at}"
        )
        if self._crash:
            raise Crashed

    def _live(self) -> None:
        _current.actor = self
        try:
            self.halt("start")
            self.result = self._run()
        except Crashed:
            self.result = None
        except Exception as error:  # noqa: BLE001 - The test checks the error.
            self.error = error
        self.ended = True
        self.at = "end"
        self._halted.release()

    def _wait_for_halt(self) -> None:
        assert self._halted.acquire(timeout=TIMEOUT_SECONDS), (
            f"{self.name} hangs after {self.at}"
        )


_current = threading.local()


def halt_here(at: str) -> None:
    """Stop the calling actor before an effect; return at once in the test's own thread."""
    actor: Actor | None = getattr(_current, "actor", None)
    if actor is not None:
        actor.halt(at)


class Stepping:
    """A wrapper that stops the calling actor before every call of a part."""

    def __init__(self, part: Any, *, name: str) -> None:
        self._part = part
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._part, attribute)
        if not callable(value):
            return value

        def stepping(*args: Any, **kwargs: Any) -> Any:
            halt_here(f"{self._name}.{attribute}")
            result = value(*args, **kwargs)
            return Stepping(result, name="handle") if attribute == "open" else result

        return stepping
