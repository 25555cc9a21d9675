"""The simulated allocator against TensorFlow's real one: the same chunks at the same addresses after every event.

On the CPU TensorFlow can be told to use the allocator it uses on a GPU, with memory growth on.
"""

import json
import random
from bisect import insort

import pytest

from memfit.estimation.bfc import BFC, OutOfMemory
from memfit.units import KIB, MIB

# An eager op makes its shape, given as a list, a tensor of its own: one int32, gone when the op has run.
SHAPE_BYTES = 4

# `Empty` allocates its output and nothing else, and touches no page of it.
CHILD = """
import os, re
from pathlib import Path
import numpy as np
import tensorflow as tf

here = Path({directory!r})
with (here / "log").open("w") as log:
    os.dup2(log.fileno(), 2)  # where the allocator says at which address a region starts
memory = lambda: tf.config.experimental.get_memory_info("CPU:0")
played = []
for events in json.loads((here / "sequences.json").read_text()):
    tf.config.experimental.reset_memory_stats("CPU:0")
    live, seen = {{}}, []
    for number, (action, operand) in enumerate(events):
        address = None
        if action == "free":
            live.pop(operand, None)
        else:
            try:
                live[number] = tensor = tf.raw_ops.Empty(shape=[operand], dtype=tf.uint8, init=False)
                address = np.frombuffer(memoryview(tensor), np.uint8).ctypes.data
                del tensor
            except tf.errors.ResourceExhaustedError:
                address = "out of memory"
        seen.append([memory()["current"], address])
    peak = memory()["peak"]
    live.clear()
    played.append([seen, peak, memory()["current"]])
regions = re.findall(r"Allocated memory at 0x([0-9a-f]+) to", (here / "log").read_text())
report([played, [int(address, 16) for address in regions]])
"""


class PlacedBFC(BFC):
    """The simulated allocator with its regions where TensorFlow got them: addresses break ties between free chunks."""

    def __init__(self, limit, addresses):
        super().__init__(limit, growth=True)
        self._addresses = iter(addresses)

    def _extend(self, rounded):
        before = set(self._chunks)
        super()._extend(rounded)
        (address,) = set(self._chunks) - before
        region, placed = self._chunks.pop(address), next(self._addresses)
        self._chunks[placed] = region
        self._free.remove((region.size, address))
        insort(self._free, (region.size, placed))


@pytest.fixture
def play(run_child, tmp_path):
    """Play sequences of events on TensorFlow's allocator; what it did, and where its regions lie."""

    def play(sequences, limit):
        (tmp_path / "sequences.json").write_text(json.dumps(sequences))
        return run_child(
            CHILD.format(directory=str(tmp_path)),
            TF_CPU_ALLOCATOR_USE_BFC="1",
            TF_CPU_BFC_MEM_LIMIT_IN_MB=str(limit // MIB),
            TF_CPP_MIN_LOG_LEVEL="0",
            TF_CPP_VMODULE="bfc_allocator=1",
        )

    return play


def simulate(sequences, allocator):
    """The same on the simulated allocator."""
    played = []
    for events in sequences:
        allocator.reset_peak()
        live, seen = {}, []
        for number, (action, operand) in enumerate(events):
            address = None
            if action == "free":
                allocator.free(live.pop(operand, None))
            else:
                shape = allocator.allocate(SHAPE_BYTES)
                try:
                    live[number] = address = allocator.allocate(operand)
                except OutOfMemory:
                    address = "out of memory"
                allocator.free(shape)
            seen.append([allocator.in_use, address])
        peak = allocator.peak
        for address in live.values():
            allocator.free(address)
        played.append([seen, peak, allocator.in_use])
    return played


def assert_alike(sequences, simulated, real):
    for events, ours, theirs in zip(sequences, simulated, real, strict=True):
        for number, event in enumerate(events):
            assert ours[0][number] == theirs[0][number], f"event {number} {event}: simulated != real"
        assert ours[1:] == theirs[1:], "peak, and in use after everything was freed"


def log_uniform(low, high):
    return lambda draw: round(low * (high / low) ** draw.random())


def one_of_a_few(count, low, high):
    """A training step asks for few different sizes again and again."""

    def size(draw):
        sizes = random.Random(count)
        return draw.choice([log_uniform(low, high)(sizes) for _ in range(count)])

    return size


WORKLOADS = {
    "any size": (log_uniform(1, 48 * MIB), "any"),
    "repeated sizes": (one_of_a_few(12, 1, 16 * MIB), "any"),
    "last in, first out": (log_uniform(256, 16 * MIB), "last"),
    "small tensors": (log_uniform(1, 8 * KIB), "any"),
    "first in, first out": (one_of_a_few(20, 1 * KIB, 32 * MIB), "first"),
    "above the 128 MiB rule": (log_uniform(1 * MIB, 400 * MIB), "any"),
}


def draw_events(draw, size, freed_first, *, count=3000, most_live=60):
    """Allocations and frees at random, with up to about `most_live` allocations alive."""
    events, live = [], []
    for number in range(count):
        if live and draw.random() < (0.3 if len(live) < most_live else 0.6):
            # Mostly in the workload's order; sometimes any, as real programs are not that tidy.
            tidy = freed_first != "any" and draw.random() < 0.8
            position = {"last": -1, "first": 0}[freed_first] if tidy else draw.randrange(len(live))
            events.append(("free", live.pop(position)))
        else:
            events.append(("allocate", size(draw)))
            live.append(number)
    return events


@pytest.mark.parametrize("seed", range(3))
def test_every_chunk_is_where_tensorflow_puts_it(play, seed):
    draw = random.Random(seed)
    sequences = [draw_events(draw, size, freed_first) for size, freed_first in WORKLOADS.values()]
    limit = 64 * 2**10 * MIB
    real, regions = play(sequences, limit)
    assert_alike(sequences, simulate(sequences, PlacedBFC(limit, regions)), real)


@pytest.mark.slow
def test_the_last_region_is_cut_at_the_limit_and_then_memory_is_out(play):
    # TensorFlow waits ten seconds for memory before it gives up, so it is made to once.
    sizes = [1, 3 * MIB, 12 * MIB, 20 * MIB, 9 * MIB, 6 * MIB, 200]
    sequences = [[*(("allocate", size) for size in sizes), ("free", 3), ("allocate", 30 * MIB), ("free", 2)]]
    limit = 64 * MIB
    real, regions = play(sequences, limit)
    simulated = simulate(sequences, allocator := PlacedBFC(limit, regions))
    assert_alike(sequences, simulated, real)
    refused = [sequences[0][number][1] for number, (_, address) in enumerate(real[0][0]) if address == "out of memory"]
    assert refused == [6 * MIB]
    assert allocator.reserved == limit
