"""Ask again what may succeed a moment later, at random moments that lie ever further apart."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from penstock.clock import Clock
from penstock.errors import StoppedError
from penstock.sources.kinesis.client import Answer, StreamClient
from penstock.sources.kinesis.failures import Kind, StreamError

# How long a request is repeated before the epoch is.
GIVE_UP_AFTER = timedelta(seconds=20)
_DELAY_FIRST = timedelta(milliseconds=100)
_DELAY_MAX = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to go on asking; ``stop`` ends every wait."""

    clock: Clock
    give_up_after: timedelta
    stop: threading.Event = field(default_factory=threading.Event)
    chance: Callable[[], float] = random.random

    def ask(self, client: StreamClient, operation: str, **arguments: object) -> Answer:
        """Send a request until it is answered, refused for good, or time is up."""
        begun = self.clock.monotonic()
        renewed = False
        tries = 0
        while True:
            try:
                return client.ask(operation, **arguments)
            except StreamError as error:
                if error.kind is Kind.EXPIRED_TOKEN and not renewed:
                    renewed = True
                    client.forget_credentials()
                    continue
                left = self.give_up_after.total_seconds() - (self.clock.monotonic() - begun)
                if not error.heals or left <= 0:
                    raise
                delay = min(self.delay(tries), timedelta(seconds=left))
            tries += 1
            self._pause(delay)

    def wait(self, tries: int) -> None:
        """Wait before something is asked again that was answered in vain so many times."""
        self._pause(self.delay(tries))

    def _pause(self, delay: timedelta) -> None:
        if self.clock.wait(self.stop, delay):
            raise StoppedError("asked to stop while waiting for the stream")

    def delay(self, tries: int) -> timedelta:
        """Answer how long to wait behind so many tries in vain: any time up to a limit."""
        longest: timedelta = min(_DELAY_MAX, _DELAY_FIRST * 2 ** min(tries, 10))
        return longest * self.chance()
