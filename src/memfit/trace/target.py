"""What the command line calls TARGET, to a model that is built and compiled.

`file.py:function`, `package.module:function` or `model.keras`. The code is the user's own and is run as it is.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from memfit.compat.compile_arguments import remembering_jit
from memfit.errors import InputError
from memfit.framework import keras
from memfit.trace.source import recording_sources

_FORMS = "Write file.py:function, package.module:function or model.keras."
_POLICIES = "float32, mixed_float16, mixed_bfloat16, float16, bfloat16, float64"
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class TargetError(InputError):
    """A TARGET that does not lead to a Keras model."""


def load_target(
    target: str, *, input_shape: tuple[int, ...] | None, optimizer: str | None, loss: str | None, policy: str | None
) -> Any:
    """Load or make the model a TARGET stands for, and compile it where that was not done.

    Args:
        target: `file.py:function`, `package.module:function` or `model.keras`. A function that takes `weights` is
            called with `weights=None`; otherwise its arguments need defaults.
        input_shape: The shape of one input without the batch, for functions that take `input_shape` and for models
            that are not built.
        optimizer: The name of a Keras optimizer; `None` keeps the model's own, and is Adam where it has none.
        loss: The name of a Keras loss; `None` keeps the model's own, and where it has none goes by its outputs.
        policy: The dtype policy to build under, such as `"mixed_float16"`; the one set before is put back.

    Returns:
        A compiled Keras model. It is built, except where neither it nor `input_shape` says what its inputs are.

    Raises:
        TargetError: If there is no such thing, it does not work, or a name is not one Keras knows.

    Example:
        ```python
        load_target("keras.applications:ResNet50", input_shape=None, optimizer="sgd", loss=None, policy=None)
        ```
    """
    _refuse_unknown_names(optimizer, loss)
    with _policy(policy):
        if target.endswith(".keras"):
            model = _load_saved(target, policy)
        else:
            with recording_sources(), remembering_jit():
                model = _call(_find_function(target), target, input_shape)
        _build(model, input_shape, target)
        _compile(model, optimizer, loss)
    return model


def _refuse_unknown_names(optimizer: str | None, loss: str | None) -> None:
    for what, name, room in (("optimizer", optimizer, keras().optimizers), ("loss", loss, keras().losses)):
        if name is not None and not _is_known(room, name):
            kind = inspect.isclass if what == "optimizer" else inspect.isfunction
            known = (each.lower() for each, value in vars(room).items() if kind(value) and _is_known(room, each))
            raise TargetError(f"{what} {name!r} is not one Keras knows. Write one of: {', '.join(sorted(known))}.")


def _is_known(room: Any, name: str) -> bool:
    """Whether `compile` would take this name."""
    try:
        found = room.get(name)
    except Exception:  # noqa: BLE001 (a class that needs arguments raises what it likes)
        return False
    return callable(found) or hasattr(found, "apply_gradients")


@contextmanager
def _policy(policy: str | None) -> Iterator[None]:
    config = keras().config
    before = config.dtype_policy()
    if policy is not None:
        try:
            config.set_dtype_policy(policy)
        except (ValueError, TypeError) as error:
            raise TargetError(f"policy {policy!r} is not one Keras knows. Write one of: {_POLICIES}.") from error
    try:
        yield
    finally:
        config.set_dtype_policy(before)


def _load_saved(target: str, policy: str | None) -> Any:
    if not Path(target).is_file():
        raise TargetError(f"there is no file {target!r}. {_FORMS}")
    if policy is not None:
        raise TargetError(
            f"policy {policy!r} cannot be given to {target!r}: the layers of a saved model keep the policy they were "
            "built with. Leave it out, or point to the function that builds the model."
        )
    try:
        return keras().saving.load_model(target, safe_mode=True)
    except Exception as error:
        # A broken archive, a class Keras does not know and code it refuses to run all surface as they like.
        raise TargetError(
            f"{target!r} cannot be loaded: {_reason(error)}. Save it again with model.save(...) if it is broken; if it "
            "needs your own classes or a Lambda layer, point to a function that builds it: file.py:function."
        ) from error


def _find_function(target: str) -> Callable[..., Any]:
    source, colon, name = target.rpartition(":")
    if not colon or not source or not name:
        raise TargetError(f"{target!r} does not say what to load. {_FORMS}")
    module = _import_file(source) if source.endswith(".py") else _import_module(source)
    try:
        function = attrgetter(name)(module)
    except AttributeError as error:
        raise TargetError(f"{source!r} has no function {name!r}. {_what_there_is(module, name)}") from error
    if not callable(function):
        raise TargetError(
            f"{target!r} is not a function but {_a(function)}. Point to a function that returns the model."
        )
    return function  # type: ignore[no-any-return]


def _import_file(source: str) -> ModuleType:
    path = Path(source).resolve()
    if not path.is_file():
        raise TargetError(f"there is no file {source!r}. {_FORMS}")
    _put_first(str(path.parent))
    # Under its own name, so that its neighbours and other processes import the same thing by it.
    name = path.stem
    if name in sys.modules:
        if getattr(sys.modules[name], "__file__", None) == str(path):
            return sys.modules[name]
        name = f"memfit_target_{name}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{source!r} cannot be imported as Python. {_FORMS}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _as_target_error(f"importing {source!r} failed"):
            spec.loader.exec_module(module)
    except TargetError:
        del sys.modules[name]
        raise
    return module


def _import_module(source: str) -> ModuleType:
    # As `python -m` does; a console script's path starts with its own folder.
    _put_first(str(Path.cwd()))
    with _as_target_error(f"importing {source!r} failed"):
        return import_module(source)


def _put_first(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _call(function: Callable[..., Any], target: str, input_shape: tuple[int, ...] | None) -> Any:
    parameters = _parameters(function)
    arguments: dict[str, Any] = {}
    if "weights" in parameters:
        arguments["weights"] = None
    if "input_shape" in parameters and input_shape is not None:
        arguments["input_shape"] = input_shape
    missing = [name for name, needed in parameters.items() if needed and name not in arguments]
    if missing == ["input_shape"]:
        raise TargetError(f"{target!r} needs an input shape. Give it, such as --input 224,224,3.")
    if missing:
        raise TargetError(
            f"{target!r} needs arguments that have no default: {', '.join(missing)}. "
            "Give them defaults, or point to a function without arguments that calls it."
        )
    with _as_target_error(f"{target!r} failed"):
        model = function(**arguments)
    if not isinstance(model, keras().Model):
        raise TargetError(f"{target!r} returned {_a(model)}, not a Keras model. Let it return the model alone.")
    return model


def _parameters(function: Callable[..., Any]) -> dict[str, bool]:
    """The parameters that can be given by name, or must be given; whether they must."""
    try:
        # Keras layers take anything in `__new__`, which is where `signature` looks first.
        signature = inspect.signature(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    except (TypeError, ValueError):
        return {}
    parameters = list(signature.parameters.values())[isinstance(function, type) :]
    return {
        each.name: each.default is inspect.Parameter.empty
        for each in parameters
        if each.kind in _BY_NAME or (each.kind not in _COLLECTING and each.default is inspect.Parameter.empty)
    }


def _build(model: Any, input_shape: tuple[int, ...] | None, target: str) -> None:
    if input_shape is None:
        return
    if not model.built:
        with _as_target_error(f"{target!r} cannot be built for inputs of shape {input_shape}"):
            if isinstance(model, keras().Sequential):
                model.build((None, *input_shape))
            else:
                model(keras().Input(input_shape))  # build() does not reach the layers of a subclassed model
        return
    shapes = [tuple(each.shape[1:]) for each in getattr(model, "inputs", None) or []]
    if len(shapes) == 1 and shapes[0] != input_shape:
        raise TargetError(
            f"{target!r} makes a model for inputs of shape {shapes[0]}, not {input_shape}. "
            "Leave the input shape out, or let the function take `input_shape` and use it."
        )


def _compile(model: Any, optimizer: str | None, loss: str | None) -> None:
    if not model.built and loss is None and not model.compiled:
        return  # what it puts out is not known, and what is wrong is that it is not built
    if not model.compiled:
        model.compile(optimizer=optimizer or "adam", loss=_losses(model, loss))
    elif optimizer is not None or loss is not None:
        settings = dict(model._compile_config.config)
        settings["optimizer"] = optimizer or settings["optimizer"] or "adam"
        if loss is not None or not settings["loss"]:
            settings["loss"] = _losses(model, loss)
        model.compile(**settings)


def _losses(model: Any, loss: str | None) -> Any:
    """The loss of each output, in the structure of the outputs."""
    # A Sequential model keeps its outputs in the Functional model inside it.
    outputs = getattr(getattr(model, "_functional", None) or model, "_outputs_struct", None)
    if outputs is not None:
        return keras().tree.map_structure(lambda output: loss or _loss_for(output), outputs)
    if loss is None:
        raise TargetError(
            f"{model.name!r} is a subclassed model that is not compiled, and does not say what it puts out. "
            "Compile it in the function, or name a loss, such as --loss mse."
        )
    return loss


def _loss_for(output: Any) -> Any:
    """What a model with this output is most likely trained with."""
    activation = _activation(output)
    if activation == "softmax":
        return "sparse_categorical_crossentropy"
    if len(output.shape) > 1 and (output.shape[-1] or 0) > 1:
        return keras().losses.SparseCategoricalCrossentropy(from_logits=True)
    return "binary_crossentropy" if activation == "sigmoid" else "mse"


def _activation(output: Any) -> str | None:
    made_by = output._keras_history.operation
    if isinstance(made_by, keras().Model):  # a model used as the last layer
        inner = [each for each in made_by.outputs if each.shape[1:] == output.shape[1:]]
        return _activation(inner[-1]) if inner else None
    activation = getattr(made_by, "activation", None)
    return getattr(activation, "__name__", None) or type(made_by).__name__.lower()


@contextmanager
def _as_target_error(what: str) -> Iterator[None]:
    """Say in one sentence what the user's code raised; the exception itself stays attached."""
    try:
        yield
    except SystemExit as error:
        raise TargetError(
            f"{what}: it ended the program ({_reason(error)}). "
            'Put what a script does on its own under `if __name__ == "__main__":`.'
        ) from error
    except Exception as error:
        raise TargetError(f"{what}: {_reason(error)}.") from error


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = lines[0].rstrip(". ") if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _what_there_is(module: ModuleType, name: str) -> str:
    functions = {each: value for each, value in vars(module).items() if inspect.isfunction(value) and each[0] != "_"}
    if close := get_close_matches(name, functions, n=3):
        return f"Did you mean {', '.join(close)}?"
    own = [each for each, value in functions.items() if value.__module__ == module.__name__] or list(functions)
    return f"It has: {', '.join(own[:12])}{', ...' if len(own) > 12 else ''}." if own else "It defines no functions."


def _a(value: object) -> str:
    name = type(value).__name__
    return "None" if value is None else f"an {name}" if name[0].lower() in "aeiou" else f"a {name}"
