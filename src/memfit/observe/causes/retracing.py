"""A step function that is traced again and again."""

import re
from collections.abc import Iterator

from memfit.observe.causes.series import last_at
from memfit.observe.events import Finding, Severity
from memfit.observe.record import Record

# A smaller last batch, and a model compiled once more for fine-tuning, are two.
LEAST = 3
_MANY = 10
BATCHES_DIFFER = (
    "Batches have different numbers of samples, and the step is traced for each.",
    "dataset = dataset.batch(batch_size, drop_remainder=True)",
)
VALUES_DIFFER = (
    "It is called with Python values or structures that change; TensorFlow traces it for each.",
    "step(tf.constant(value))   # a tensor instead of a Python number",
)
_SHAPES = re.compile(r"changed from \S+ \(([^)]*)\) to \S+ \(([^)]*)\)")


def find(record: Record) -> Iterator[Finding]:
    """Each trace costs seconds and is kept in host memory for good."""
    worst = max(record.retraces, key=lambda line: line.count, default=None)
    if worst is None or worst.count < LEAST:
        return
    same = [line for line in record.retraces if (line.phase, line.function) == (worst.phase, worst.function)]
    reasons = list(dict.fromkeys(line.reason for line in same))
    severity: Severity = "problem" if worst.count >= _MANY else "warning"
    steps = ", ".join(str(line.step) for line in same[:5]) + (", ..." if len(same) > 5 else "")
    cause, fix = _explained(reasons[-1])
    yield Finding(
        at=last_at(record),
        id="retracing",
        title=f"{worst.function} was traced again {worst.count} times",
        evidence=f"At {worst.phase} steps {steps}: {'; then '.join(reasons[:3])}.",
        cause=cause,
        fix=fix,
        severity=severity,
    )


def _explained(reason: str) -> tuple[str, str]:
    """Why a function is traced again, and the line that ends it."""
    if "compile()" in reason:
        return (
            "model.compile is called again and again, and each time Keras makes its step functions anew.",
            "model.compile(...)   # once, before the loop; change rates with model.optimizer.learning_rate = ...",
        )
    shapes = [(before.split(","), after.split(",")) for before, after in _SHAPES.findall(reason)]
    if shapes and all(before[1:] == after[1:] for before, after in shapes):
        return BATCHES_DIFFER
    if shapes:
        return (
            "Samples have different shapes, and the step is traced for each.",
            "dataset = dataset.padded_batch(batch_size, padded_shapes=...)   # or resize to one shape",
        )
    return VALUES_DIFFER
