"""Serve Kinesis on 127.0.0.1: python -m tests.servers.kinesis."""

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

from penstock.clock import SystemClock
from tests.servers.kinesis.http_server import KinesisHttpServer
from tests.servers.kinesis.service import Service
from tests.servers.kinesis.state import State

_MORE = """\
The first line of output is the endpoint; give it to any client of Kinesis, with any keys:

  $ python -m tests.servers.kinesis --port 4567
  http://127.0.0.1:4567
  $ aws kinesis create-stream --stream-name clicks --shard-count 2 \\
        --endpoint-url http://127.0.0.1:4567

Everything is in memory and is gone when the server ends. Faults, limits and the clock are
changed while it runs:

  $ curl -d '{"do": "switch", "switches": {"limit_reads": true}}' http://127.0.0.1:4567/control
  $ curl -d '{"do": "move_clock", "seconds": 301}' http://127.0.0.1:4567/control
  $ curl -d '{"do": "inject", "operation": "GetRecords", "code": "InternalFailure",
              "status": 500, "times": 3}' http://127.0.0.1:4567/control
  $ curl -d '{"do": "requests"}' http://127.0.0.1:4567/control

From Python, tests.servers.kinesis.server.KinesisServer does all of this.
"""


def main(words: Sequence[str]) -> None:
    """Serve until the process is told to end."""
    chosen = _parser().parse_args(words)
    service = Service(State(clock=SystemClock(), region=chosen.region))
    with KinesisHttpServer(service, chosen.port) as server:
        signal.signal(signal.SIGTERM, lambda *_: _end(server))
        signal.signal(signal.SIGINT, lambda *_: _end(server))
        if chosen.until_input_ends:
            threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
        sys.stdout.write(f"{server.endpoint}\n")
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.servers.kinesis",
        description="An Amazon Kinesis Data Streams server for tests and demos.",
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one"
    )
    parser.add_argument("--region", default="us-east-1", help="region in the ARNs of streams")
    parser.add_argument(
        "--until-input-ends",
        action="store_true",
        help="end also when standard input ends, as it does with the process that started this",
    )
    return parser


def _end(server: KinesisHttpServer) -> None:
    # The loop that serves cannot wait for its own end.
    threading.Thread(target=server.shutdown).start()


def _end_with_input(server: KinesisHttpServer) -> None:
    sys.stdin.buffer.read()
    _end(server)


if __name__ == "__main__":
    main(sys.argv[1:])
