"""Serve Kinesis on 127.0.0.1: python -m tests.servers.kinesis."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence

from penstock.clock import SystemClock
from tests.servers.kinesis.http_server import KinesisHttpServer
from tests.servers.kinesis.service import Service
from tests.servers.kinesis.state import State

_EPILOG = """\
The first line of output is the endpoint URL. Use it with any Kinesis client and any keys:

  $ python -m tests.servers.kinesis --port 4567
  http://127.0.0.1:4567
  $ aws kinesis create-stream --stream-name clicks --shard-count 2 \\
        --endpoint-url http://127.0.0.1:4567

All data is in memory and is lost when the server stops. Faults, limits and the clock can be
changed while the server runs:

  $ curl -d '{"do": "switch", "switches": {"limit_reads": true}}' http://127.0.0.1:4567/control
  $ curl -d '{"do": "move_clock", "seconds": 301}' http://127.0.0.1:4567/control
  $ curl -d '{"do": "inject", "operation": "GetRecords", "code": "InternalFailure",
              "status": 500, "times": 3}' http://127.0.0.1:4567/control
  $ curl -d '{"do": "requests"}' http://127.0.0.1:4567/control

In Python, use tests.servers.kinesis.server.KinesisServer.
"""


def main(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM or SIGINT arrives."""
    options = _parser().parse_args(arguments)
    service = Service(State(clock=SystemClock(), region=options.region))
    with KinesisHttpServer(service, options.port) as server:
        signal.signal(signal.SIGTERM, lambda *_: _stop(server))
        signal.signal(signal.SIGINT, lambda *_: _stop(server))
        if options.until_input_ends:
            threading.Thread(target=_stop_with_input, args=(server,), daemon=True).start()
        sys.stdout.write(f"{server.endpoint}\n")
        sys.stdout.flush()
        server.serve_forever(poll_interval=0.1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.servers.kinesis",
        description="An Amazon Kinesis Data Streams server for tests and demos.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port on 127.0.0.1; 0 for a free port"
    )
    parser.add_argument("--region", default="us-east-1", help="region in the ARNs of streams")
    parser.add_argument(
        "--until-input-ends",
        action="store_true",
        help="stop when standard input is closed, for example because the parent process ended",
    )
    return parser


def _stop(server: KinesisHttpServer) -> None:
    # ``shutdown`` waits for the serving thread, so it must run in another thread.
    threading.Thread(target=server.shutdown).start()


def _stop_with_input(server: KinesisHttpServer) -> None:
    # A buffered read would hold a lock of sys.stdin while the process exits.
    while os.read(sys.stdin.fileno(), 4096):
        continue
    _stop(server)


if __name__ == "__main__":
    main(sys.argv[1:])
