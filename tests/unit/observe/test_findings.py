"""What is found in records made by hand, and what is not: noise, warm-up and levelling off are no leak."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from memfit.observe.events import Epoch, Fragmentation, Model, OutOfMemory, Recovery, Retrace, Run, Steps
from memfit.observe.findings import findings
from memfit.observe.record import Finding, Record
from memfit.units import GIB, MIB

EPOCHS, PER_EPOCH = 8, 25


def record(
    in_use=lambda step: 500 * MIB,
    host=lambda step: 4 * GIB,
    peak=lambda step: 6 * GIB,
    seconds=lambda step: 0.2,
    validation=None,
    predict=None,
    epochs=EPOCHS,
    count=1,
    **others,
):
    """A run of `epochs` times 25 steps, numbered from 1."""
    steps, ends = [], []
    at = 0.0
    for number in range(1, epochs * PER_EPOCH + 1, count):
        at += seconds(number)
        epoch = (number - 1) // PER_EPOCH + 1
        size = in_use(number)
        steps.append(
            Steps(at, "train", epoch, number, count, seconds(number), seconds(number), size, size, peak(number),
                  host(number))
        )  # fmt: skip
        if number % PER_EPOCH == 0 and validation:
            first = (epoch - 1) * 2 + 1
            steps += [
                Steps(at + 0.01, "validation", epoch, first + n, 1, 0.1, 0.1, size, size, validation) for n in (0, 1)
            ]
        if number % PER_EPOCH == 0:
            ends.append(Epoch(at + 0.02, epoch, "train", PER_EPOCH, 5.0))
    steps += [
        Steps(at + n, "predict", None, n, 1, 0.1, 0.1, predict(n), predict(n), predict(n))
        for n in range(1, 40)
        if predict
    ]
    run = others.pop("run", Run(device="GPU:0", limit_bytes=8 * GIB, growth=False, host_memory_bytes=64 * GIB))
    empty = ("models", "retraces", "timelines", "fragmentation", "out_of_memory", "recoveries", "findings")
    return Record(
        path=Path("run.memfit.jsonl"), run=run, steps=tuple(steps), epochs=tuple(ends), end=None, broken_lines=0,
        cut=False, **{name: tuple(others.get(name, ())) for name in empty},
    )  # fmt: skip


def ids(made):
    return [finding.id for finding in findings(made)]


def noise(seed, size):
    draw = random.Random(seed)
    return {step: draw.randrange(size) for step in range(1, 10_000)}


def test_a_plain_run_has_nothing_to_find():
    assert ids(record(validation=3 * GIB)) == []
    assert ids(record(epochs=0)) == []
    nothing_known = record(in_use=lambda _: None, host=lambda _: None, peak=lambda _: None, run=Run())
    assert ids(nothing_known) == []


@pytest.mark.parametrize("per_step", [64 * 1024, MIB, 20 * MIB])
@pytest.mark.parametrize("jitter", [1, 2 * MIB])
def test_a_leak_is_found_under_noise(per_step, jitter):
    jitters = noise(1, jitter)
    (found,) = findings(record(lambda step: 500 * MIB + step * per_step + jitters[step]))
    assert (found.id, found.severity) == ("device-memory-leak", "problem")
    assert "a step" in found.evidence
    assert "float(loss)" in found.fix


def test_a_leak_of_one_tensor_an_epoch_is_found():
    assert ids(record(lambda step: 500 * MIB + (step - 1) // PER_EPOCH * 3 * MIB)) == ["device-memory-leak"]


def test_a_leak_is_found_in_a_thinned_record():
    assert ids(record(lambda step: 500 * MIB + step * MIB, count=5, epochs=40)) == ["device-memory-leak"]


@pytest.mark.parametrize("seed", range(40))
def test_noise_is_no_leak(seed):
    jitters, host = noise(seed, 200 * MIB), noise(seed + 1000, GIB)
    assert ids(record(lambda step: 500 * MIB + jitters[step], lambda step: 4 * GIB + host[step])) == []


@pytest.mark.parametrize("seed", range(40))
def test_a_resident_set_that_wanders_is_no_leak(seed):
    draw = random.Random(seed)
    walk, level = {}, 4 * GIB
    for step in range(1, 1000):
        level = max(3 * GIB, level + draw.randint(-4 * MIB, 4 * MIB))
        walk[step] = level
    assert ids(record(host=walk.__getitem__)) == []


@pytest.mark.parametrize("steps_to_level", [5, 30, 60, 90])
def test_warm_up_that_levels_off_is_no_leak(steps_to_level):
    def level(step):
        return 300 * MIB + int(400 * MIB * (1 - 2 ** (-step / steps_to_level)))

    assert ids(record(level, lambda step: 3 * GIB + 4 * level(step))) == []


def test_one_jump_or_one_larger_epoch_is_no_leak():
    assert ids(record(lambda step: (500 if step < 110 else 900) * MIB)) == []
    assert ids(record(lambda step: 500 * MIB + step % PER_EPOCH * 10 * MIB)) == []


def test_a_data_set_filling_its_cache_in_the_first_epoch_is_no_leak():
    def filling(step):
        return 4 * GIB + min(step, PER_EPOCH) * 40 * MIB

    on_cpu = Run(device="CPU:0", limit_bytes=8 * GIB, host_memory_bytes=64 * GIB)
    assert ids(record(filling, filling, run=on_cpu)) == []
    assert ids(record(filling, filling, run=on_cpu, epochs=1)) == []


def test_a_cache_that_takes_much_of_the_host_is_a_finding():
    (found,) = findings(record(host=lambda step: 4 * GIB + min(step, PER_EPOCH) * GIB))
    assert found.id == "dataset-cache-in-ram"
    assert "24 GiB" in found.title


def test_a_host_leak_is_found_and_named_after_what_else_is_known():
    def growing(step):
        return 4 * GIB + step * 2 * MIB

    (found,) = findings(record(host=growing))
    assert found.id == "host-memory-leak"
    models = [Model(at=n, model=f"net_{n}") for n in range(6)]
    assert "6 models" in findings(record(host=growing, models=models))[0].cause
    retraces = [Retrace(n, "train", n, "train_function", "x changed", n) for n in range(1, 9)]
    assert "traced again" in findings(record(host=growing, retraces=retraces))[0].cause


def test_fragmentation_that_made_a_request_fail():
    failure = OutOfMemory(at=9, phase="train", epoch=1, step=40, asked_bytes=512 * MIB, in_use_bytes=7 * GIB)
    holes = Fragmentation(at=9.2, free_bytes=900 * MIB, largest_free_bytes=200 * MIB)
    (found,) = [
        each for each in findings(record(out_of_memory=[failure], fragmentation=[holes])) if each.id == "fragmentation"
    ]
    assert found.severity == "problem"
    assert "512 MiB were refused while 900 MiB were free" in found.title
    assert "fragmentation" in ids(record(out_of_memory=[failure])), "a gigabyte was free"


def test_holes_matter_only_where_memory_is_tight():
    holes = [Fragmentation(at=9, free_bytes=900 * MIB, largest_free_bytes=200 * MIB)]
    assert ids(record(fragmentation=holes)) == []
    assert ids(record(fragmentation=holes, peak=lambda _: int(7.6 * GIB))) == ["fragmentation"]
    one_piece = [Fragmentation(at=9, free_bytes=900 * MIB, largest_free_bytes=800 * MIB)]
    assert ids(record(fragmentation=one_piece, peak=lambda _: int(7.6 * GIB))) == []


def test_what_to_set_against_fragmentation_depends_on_the_device():
    holes = [Fragmentation(at=9, free_bytes=900 * MIB, largest_free_bytes=200 * MIB)]

    def fix(**run):
        made = record(fragmentation=holes, peak=lambda _: int(7.6 * GIB), run=Run(limit_bytes=8 * GIB, **run))
        return findings(made)[0].fix

    assert "limit=" in fix(device="GPU:0", growth=True)
    assert "drop_remainder" in fix(device="GPU:0", growth=False)
    assert "drop_remainder" in fix(device="CPU:0")


def test_growth_that_keeps_the_space_of_autotuning():
    def peak(step):
        return 18 * GIB if step == 1 else 3 * GIB

    growing = Run(device="GPU:0", growth=True)
    (found,) = findings(record(peak=peak, run=growing))
    assert found.id == "growth-keeps-autotuning"
    assert "15 GiB" in found.title
    assert 'limit="3392MiB"' in found.fix
    assert ids(record(peak=peak, run=Run(device="GPU:0", growth=False, limit_bytes=20 * GIB))) == []
    assert ids(record(peak=lambda step: 3.4 * GIB if step == 1 else 3 * GIB, run=growing)) == []


def test_validation_that_takes_more_than_training():
    (found,) = findings(record(validation=7 * GIB, models=[Model(at=0, model="net", batch_size=64)]))
    assert (found.id, found.severity) == ("validation-above-training", "note")
    assert "validation_batch_size=54" in found.fix
    assert findings(record(validation=int(7.6 * GIB)))[0].severity == "warning"
    assert ids(record(validation=int(6.1 * GIB))) == []


def retraces(count, reason):
    return [Retrace(n, "train", 10 * n, "train_function", reason, n) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        ("x changed from float32 (24, 32, 32, 3) to float32 (12, 32, 32, 3)", "drop_remainder=True"),
        ("x changed from float32 (24, 32, 32, 3) to float32 (24, 48, 48, 3)", "padded_batch"),
        ("Keras made the function anew: compile() was called again, or ...", "once, before the loop"),
        ("shapes and types are as before: something the step reads has changed, such as a Python value", "tf.constant"),
    ],
)
def test_retracing_with_its_reason(reason, fix):
    (found,) = findings(record(retraces=retraces(4, reason)))
    assert (found.id, found.severity) == ("retracing", "warning")
    assert "4 times" in found.title
    assert reason in found.evidence
    assert fix in found.fix


def test_a_last_smaller_batch_is_no_retracing_to_speak_of():
    assert ids(record(retraces=retraces(2, "x changed from float32 (32, 3) to float32 (8, 3)"))) == []


def test_time_lost_in_the_allocator():
    def seconds(step):
        return 10.3 if step in (40, 90) else 20.2 if step == 120 else 0.2

    (found,) = findings(record(seconds=seconds, peak=lambda _: int(7.9 * GIB)))
    assert found.id == "allocator-retries"
    assert "40 s" in found.title
    assert ids(record(seconds=seconds)) == [], "far below the limit something else was slow"
    slow = record(seconds=lambda step: 14.0 if step == 40 else 0.2, peak=lambda _: int(7.9 * GIB))
    assert ids(slow) == [], "no multiple of ten seconds"
    compiling = [*retraces(2, "x changed"), Retrace(1, "train", 50, "train_function", "x", 1)]
    once = record(
        seconds=lambda step: 10.2 if step in (1, 50) else 0.2, peak=lambda _: int(7.9 * GIB), retraces=compiling
    )
    assert ids(once) == [], "it was compiled"


def test_time_lost_before_a_failure():
    before = 0.2 * 40
    failures = [OutOfMemory(at=before + 10.3, phase="train", epoch=2, step=41, asked_bytes=GIB)]
    made = record(seconds=lambda step: 0.2 if step != 41 else 16.0, out_of_memory=failures,
                  recoveries=[Recovery(at=before + 15, phase="train", what="again")])  # fmt: skip
    assert ids(made) == ["allocator-retries"]


def test_predictions_that_pile_up():
    (found,) = findings(record(predict=lambda step: 500 * MIB + step * 40 * MIB))
    assert found.id == "predictions-pile-up"
    assert "predict_on_batch" in found.fix
    assert ids(record(predict=lambda step: 500 * MIB + step * 4096)) == []
    assert ids(record(predict=lambda step: (500 + step % 3 * 400) * MIB)) == []


def test_what_the_run_found_itself_is_not_found_again():
    leaking = record(lambda step: 500 * MIB + step * MIB)
    (found,) = findings(leaking)
    known = Finding(at=1, id=found.id, title="t", evidence="e", cause="c", fix="f")
    assert ids(record(lambda step: 500 * MIB + step * MIB, findings=[known])) == []


def test_nothing_here_imports_tensorflow():
    code = "import sys, memfit.observe.findings; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_worst_comes_first():
    made = record(lambda step: 500 * MIB + step * MIB, validation=7 * GIB, retraces=retraces(4, "x changed"))
    assert [each.severity for each in findings(made)] == ["problem", "warning", "note"]
