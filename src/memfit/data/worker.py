"""A worker of tf.data service as a process: `python -m memfit.data.worker HOST:PORT`. It ends when its parent does."""

import sys

from memfit.framework import tensorflow


def main(dispatcher: str) -> None:
    """Serve until stdin is closed, which happens when the process that started this one is gone."""
    service = tensorflow().data.experimental.service
    config = service.WorkerConfig(
        dispatcher_address=dispatcher, heartbeat_interval_ms=100, dispatcher_timeout_ms=10_000
    )
    worker = service.WorkerServer(config)
    sys.stdin.buffer.read()
    del worker


if __name__ == "__main__":
    main(sys.argv[1])
