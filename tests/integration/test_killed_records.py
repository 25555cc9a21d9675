"""Records of processes that are killed at any moment can be read."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from itertools import pairwise

import pytest

from memfit.observe.record import read_record

# Writes as a training does, as fast as it can: a kill comes between any two instructions.
WRITER = """
import sys, time
from pathlib import Path
from memfit.observe.events import Retrace, Run, Timeline, TimelineOp
from memfit.observe.recording import Recording

recording = Recording(Path(sys.argv[1]), Run(device="CPU:0"))
names = tuple(TimelineOp(f"net/layer_{number}/Relu", "Relu", f"layer_{number}", "forward") for number in range(100))
points = tuple((number, number * 1000, number % 100, 1000) for number in range(4000))
recording.begin("train")
for number in range(10**9):
    recording.step("train", 1, 0.001, 1000, 2000, when=time.perf_counter())
    if number % 50 == 0:
        recording.write(Timeline(recording.now(), "train", number, 0.1, 1, 2, names, points, ()))
        recording.epoch_done("train", 50, 0.1, 2000, {"loss": 0.5})
"""
TRAINING = """
import sys
import keras, numpy as np
import memfit

x, y = np.zeros((64, 8), "float32"), np.zeros((64, 1), "float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
model.compile("adam", "mse", jit_compile=False)
recorder = memfit.Recorder(sys.argv[1], profile_steps=range(4, 10**6, 7))
model.fit(x, y, batch_size=4, epochs=10**6, verbose=0, validation_data=(x, y), callbacks=[recorder])
"""


def killed(code, path, seconds_recorded):
    """Start a process, kill it some time after its record appears, and read the record."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(path)], env=environment, stderr=-1)
    try:
        deadline = time.monotonic() + 60
        while not path.exists() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(seconds_recorded)
        child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        _, said = child.communicate()
    assert child.returncode == -signal.SIGKILL, said.decode()[-2000:]
    return read_record(path)


def check(records):
    for record in records:
        assert record.end is None, "nobody wrote an end"
        assert record.broken_lines == 0
        for phase in ("train", "validation"):
            steps = [line for line in record.steps if line.phase == phase]
            assert all(after.first == before.first + before.count for before, after in pairwise(steps))
    assert max(len(record.steps) for record in records) > 5, "the kills came too early to mean anything"


def kill_writers(folder, count):
    chance = random.Random(count)
    return [killed(WRITER, folder / f"{number}.memfit.jsonl", chance.uniform(0, 0.15)) for number in range(count)]


def test_records_of_killed_writers_open(tmp_path):
    check(kill_writers(tmp_path, 8))


@pytest.mark.slow
def test_records_of_200_killed_writers_open(tmp_path):
    check(kill_writers(tmp_path, 200))


@pytest.mark.slow
def test_records_of_killed_trainings_open(tmp_path):
    chance = random.Random(5)
    check([killed(TRAINING, tmp_path / f"{number}.memfit.jsonl", chance.uniform(0, 2)) for number in range(5)])
