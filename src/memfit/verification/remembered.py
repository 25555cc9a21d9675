"""What was verified once is not verified again, as long as nothing it depends on has changed."""

import hashlib
import json
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from memfit.cache import cached
from memfit.framework import keras, tensorflow
from memfit.techniques.together import fingerprint
from memfit.verification.code_of import code_of
from memfit.verification.differences import Difference
from memfit.verification.samples import spec_of
from memfit.verification.steps import Outcome

_in_this_process: dict[str, Outcome] = {}


def remembered(
    model: Any, techniques: dict[str, Any], batch: Any, compare: Callable[[], Outcome]
) -> tuple[Outcome, bool]:
    """The outcome for this model, these techniques and such data, and whether it was known already.

    A step that could not be compared is not remembered: the reason may be gone the next time.
    """
    key = _key(model, techniques, batch)
    if key in _in_this_process:
        return _in_this_process[key], True
    known = True

    def make() -> bytes:
        nonlocal known
        known = False
        outcome = compare()
        if outcome.inconclusive is not None:
            raise _Inconclusive(outcome)
        return json.dumps(asdict(outcome)).encode()

    try:
        code = _user_code()
        stored = make() if code is None else cached("verified", (key, code), make)
    except _Inconclusive as inconclusive:
        return inconclusive.outcome, False
    values = json.loads(stored)
    outcome = Outcome(tuple(Difference(**each) for each in values["differences"]), values["samples"])
    _in_this_process[key] = outcome
    return outcome, known


class _Inconclusive(Exception):  # noqa: N818 (not an error)
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


def _key(model: Any, techniques: dict[str, Any], batch: Any) -> str:
    """Everything of the model that decides what a step computes, as far as it can be written down."""
    facts = [
        str(tensorflow().__version__),
        str(keras().__version__),
        sys.version,
        repr(sorted(techniques.items(), key=lambda each: each[0])),
        fingerprint(model),
        repr([each.trainable for each in model.variables]),
        *(_described(each) for each in (model, getattr(model, "optimizer", None), _compiled(model))),
        code_of(_with_code(model)),
        repr(spec_of(batch, any_size=True)),
    ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _described(thing: Any) -> str:
    """The configuration of a Keras object; an object without one is told by itself, so it is not remembered long."""
    try:
        return json.dumps(keras().saving.serialize_keras_object(thing), sort_keys=True, default=repr)
    except Exception:  # noqa: BLE001 (get_config is the user's)
        return f"{type(thing).__qualname__} at {id(thing)}"


def _with_code(model: Any) -> Iterator[Any]:
    """Everything whose code is part of a step."""
    yield from model._flatten_layers()
    yield getattr(model, "optimizer", None)
    for each in keras().tree.flatten(_compiled(model)):
        yield each
        # Keras keeps a loss or metric function inside an object of its own.
        yield from (value for value in vars(each).values() if callable(value)) if hasattr(each, "__dict__") else ()


def _compiled(model: Any) -> Any:
    config = getattr(model, "_compile_config", None)
    if config is None:
        return {}
    return {name: value for name, value in config.config.items() if name != "optimizer"}


def _user_code() -> str | None:
    """A digest of all code that is not installed and of the command line; `None` where code has no file."""
    main = sys.modules.get("__main__")
    if main is None or getattr(main, "__file__", None) is None:
        return None
    digest = hashlib.sha256(repr(sys.argv).encode())
    for path in sorted({*_files()}):
        try:
            digest.update(str(path).encode() + path.read_bytes())
        except OSError:
            return None
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    """The source of modules that are neither Python's nor TensorFlow's or Keras's."""
    standard = tuple(str(Path(sysconfig.get_path(each)).resolve()) for each in ("stdlib", "platstdlib"))
    installed = tuple(str(Path(sysconfig.get_path(each)).resolve()) for each in ("purelib", "platlib"))
    for module in [*sys.modules.values()]:
        name = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
        if not name or not name.endswith(".py"):
            continue
        path = Path(name).resolve()
        if str(path).startswith(installed):
            if module.__name__.partition(".")[0] in _WITH_LAYERS:
                yield path
        elif not str(path).startswith(standard):
            yield path


# Installed packages whose layers and losses people train with, and whose version is not part of the key.
_WITH_LAYERS = ("keras_hub", "keras_cv", "keras_nlp", "keras_rs", "keras_tuner", "tensorflow_addons", "tf_keras")
