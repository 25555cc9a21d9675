"""Several techniques put onto a model for a while, and what tells models apart for which they differ."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from memfit.techniques.registry import NAMES, technique
from memfit.techniques.technique import Verdict


@contextmanager
def together(model: Any, techniques: Mapping[str, Any]) -> Iterator[None]:
    """Train inside with these techniques; afterwards the model is as it was, whatever happened inside.

    Args:
        model: A built, compiled Keras model.
        techniques: Values by the names of techniques.
    """
    with ExitStack() as stack:
        for name in NAMES:
            if name in techniques:
                stack.enter_context(technique(name).applied(model, techniques[name]))
        yield


def verdicts(model: Any, techniques: Mapping[str, Any]) -> dict[str, Verdict]:
    """How exact each technique claims to be for a model.

    Raises:
        InputError: If the model cannot carry one.
    """
    return {name: technique(name).check(model, techniques[name]) for name in NAMES if name in techniques}


def fingerprint(model: Any) -> str:
    """A short text of a model's layers and the shapes of their weights."""
    layers = [(type(each).__name__, [tuple(v.shape) for v in each.variables]) for each in model._flatten_layers()]
    digest = hashlib.sha256(repr(layers).encode()).hexdigest()[:12]
    return f"{len(layers)}-{digest}"
