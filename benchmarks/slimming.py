"""What slimming, pruning and quantization cost in accuracy and save in memory, on a small network and on known ones.

Usage:
    python benchmarks/slimming.py [--json OUT.json] [--only shapes] [--only architectures]

shapes: a small network learns pictures of shapes; each variant starts from it and is trained two more epochs, and is
held against the network itself after the same two. What is only converted is held against what it was made from.
Accuracy is taken on pictures none of them has seen; peaks are measured in processes of their own, on the CPU through
TensorFlow's BFC allocator. architectures: ResNet50, VGG16 and a U-Net, slimmed, with predicted and measured peaks; on a
GPU `techniques.py --only plain --only slim` has them.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from models import built
from rich.console import Console
from rich.table import Table
from shapes import compile_for, network, pictures
from versions import versions

import memfit
from memfit.framework import keras
from memfit.slimming.accuracy import accuracy
from memfit.units import format_size

_TRAINING, _TESTING, _EPOCHS, _MORE_EPOCHS, _BATCH = 3000, 2000, 5, 2, 32
# What the small network has to reach: points of accuracy it may lose, and shares of a size that may be left.
_ACCURACY = 0.95
_MOST_LOST = {"separable": 2, "80 % sparse": 2, "half the filters": 3, "int8": 1, "int8, trained for it": 1}
_MOST_LEFT = {"half the filters": ("measured_predict_peak_bytes", 0.7), "int8": ("file_bytes", 0.3)}
_ARCHITECTURES = {
    "ResNet50": {"model": "ResNet50", "size": 32},
    "VGG16": {"model": "VGG16", "size": 32},
    "U-Net": {"model": "unet", "size": 32},
}
_WAYS: tuple[dict[str, Any], ...] = ({"separable": True}, {"width": 0.5})


def shape_cases(folder: Path) -> Iterator[dict[str, Any]]:
    """The small network and its variants."""
    keras().utils.set_random_seed(0)
    training, testing = pictures(_TRAINING, seed=1), pictures(_TESTING, seed=2)
    model = network()
    model.fit(*training, epochs=_EPOCHS, batch_size=_BATCH, verbose=0)
    right = accuracy(partial(model.predict, verbose=0), testing, _BATCH)

    def copied() -> Any:
        return memfit.slim(model, width=1.0)

    def trained(variant: Any, *callbacks: Any) -> float:
        compile_for(variant, 1e-3)
        variant.fit(*training, epochs=_MORE_EPOCHS, batch_size=_BATCH, verbose=0, callbacks=list(callbacks))
        return accuracy(partial(variant.predict, verbose=0), testing, _BATCH)

    def case(name: str, found: float, against: float, **facts: Any) -> dict[str, Any]:
        return {"case": name, "accuracy": found, "lost_points": 100 * (against - found), **facts}

    yield case("plain", right, right, parameters=model.count_params(), **_measured(model, _BATCH))
    longer = trained(copied())
    yield case("plain, trained on", longer, longer, parameters=model.count_params())
    for name, variant in (
        ("separable", memfit.slim(model, separable=True)),
        ("half the filters", memfit.compress.prune_filters(model, 0.5)),
    ):
        found = trained(variant)
        yield case(name, found, longer, parameters=variant.count_params(), **_measured(variant, _BATCH))
    for name, settings in (("80 % sparse", {"sparsity": 0.8}), ("2:4", {"sparsity": 0.5, "pattern": "2:4"})):
        sparse = copied()
        pruning = memfit.compress.prune(sparse, **settings)
        found = trained(sparse, pruning)
        yield case(
            name,
            found,
            longer,
            # Zeros take the memory other weights take: there is no peak to measure.
            parameters=sparse.count_params(),
            sparsity=pruning.report().sparsity,
            file_bytes=memfit.compress.export(sparse, folder / "sparse.keras", force=True),
            of_bytes=memfit.compress.export(model, folder / "plain.keras", force=True),
        )
    aware = memfit.compress.quantization_aware(model)
    compile_for(aware, 1e-4)
    aware.fit(*training, epochs=1, batch_size=_BATCH, verbose=0)
    for name, source, scheme, against in (
        ("int8", model, "int8", right),
        ("int8, trained for it", aware, "int8", longer),
        ("dynamic", model, "dynamic", right),
        ("float16", model, "float16", right),
    ):
        file = memfit.compress.quantize(
            source, folder / f"{name}.tflite", scheme=scheme, calibration=training[0][:200], data=testing
        )
        yield case(
            name,
            file.accuracy or 0.0,
            against,
            file_bytes=file.file_bytes,
            of_bytes=file.float32_file_bytes,
            activation_peak_bytes=file.activation_peak,
            float32_activation_peak_bytes=file.float32_activation_peak,
        )


def architecture_cases() -> Iterator[dict[str, Any]]:
    """Known networks at batch 8, before and after."""
    for way in _WAYS:
        for name, row in _ARCHITECTURES.items():
            with built(row) as model:
                model.compile("adam", model.loss, jit_compile=False)
                smaller = memfit.slim(model, **way)
                found = memfit.compare(model, smaller, batch_size=8, gpu="cpu", jit=False, measure=True)
                yield {"case": f"{name}, {way}", **found.to_dict()}


def _measured(model: Any, batch: int) -> dict[str, Any]:
    found = memfit.measure(model, batch, jit=False)
    return {
        "measured_train_peak_bytes": found.steady_peak,
        "measured_predict_peak_bytes": found.predict_peak,
        "measured_step_seconds": found.step_seconds,
    }


def missed_bars(outcomes: list[dict[str, Any]]) -> list[str]:
    """The bars of the small network that were not met, in words."""
    by_name = {each["case"]: each for each in outcomes}
    plain = by_name["plain"]
    missed = []
    if plain["accuracy"] <= _ACCURACY:
        missed.append(f"plain: {plain['accuracy']:.1%}, not above {_ACCURACY:.0%}")
    for name, most in _MOST_LOST.items():
        if by_name[name]["lost_points"] > most:
            missed.append(f"{name}: lost {by_name[name]['lost_points']:.1f} points, more than {most}")
    for name, (field, most) in _MOST_LEFT.items():
        of = by_name[name].get("of_bytes") or plain[field]
        if by_name[name][field] > most * of:
            missed.append(f"{name}: {field} is {by_name[name][field] / of:.0%}, more than {most:.0%}")
    return missed


def show_shapes(outcomes: list[dict[str, Any]]) -> None:
    """The small network's variants side by side."""
    table = Table(
        "case", "accuracy", "points lost", "parameters", "train peak", "predict peak", "step ms", "file", "of"
    )
    for each in outcomes:
        seconds = each.get("measured_step_seconds")
        sizes = [each.get(key) for key in ("measured_train_peak_bytes", "measured_predict_peak_bytes")]
        files = [each.get(key) for key in ("file_bytes", "of_bytes")]
        table.add_row(
            each["case"],
            f"{each['accuracy']:.1%}",
            f"{each['lost_points']:+.1f}",
            f"{each['parameters']:,}" if "parameters" in each else "",
            *(format_size(size) if size else "" for size in sizes),
            f"{seconds * 1000:.1f}" if seconds else "",
            *(format_size(size) if size else "" for size in files),
        )
    Console(width=140).print(table)


def show_architectures(outcomes: list[dict[str, Any]]) -> None:
    """Known networks before and after."""
    table = Table(
        "case", "parameters", "train peak: predicted", "measured", "predict: predicted", "measured", "step ms"
    )
    for each in outcomes:
        for side in ("first", "second"):
            facts, run = each[side], each[side]["measured"]
            table.add_row(
                each["case"] if side == "second" else each["case"].split(",")[0],
                f"{facts['parameters']:,}",
                format_size(facts["train_peak_bytes"]),
                format_size(run["measured_steady_peak_bytes"]),
                format_size(facts["predict_peak_bytes"]),
                format_size(run["measured_predict_peak_bytes"]),
                f"{run['measured_step_seconds'] * 1000:.0f}",
            )
    Console(width=140).print(table)


def write(record: dict[str, Any], path: Path | None) -> None:
    """Keep what there is, also while more is on its way."""
    if path is not None:
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run what was asked for and say what came out; exit code 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", action="append", choices=["shapes", "architectures"], default=[])
    options = parser.parse_args()
    record: dict[str, Any] = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "versions": versions(),
    }
    missed: list[str] = []
    if not options.only or "shapes" in options.only:
        with tempfile.TemporaryDirectory(prefix="memfit-") as folder:
            record["shapes"] = list(shape_cases(Path(folder)))
        show_shapes(record["shapes"])
        record["missed_bars"] = missed = missed_bars(record["shapes"])
    if not options.only or "architectures" in options.only:
        record["architectures"] = []
        for outcome in architecture_cases():
            record["architectures"].append(outcome)
            write(record, options.json)
        show_architectures(record["architectures"])
    write(record, options.json)
    if missed:
        raise SystemExit("\n".join(missed))


if __name__ == "__main__":
    main()
