"""Mixed precision: layers compute in half precision; variables, losses and outputs stay float32.

Keras wants this decided before a model is built. But a layer asks its dtype policy anew in every call, so on a built
model another policy and another trace are all it takes.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.techniques.instance import retraced
from memfit.techniques.optimizer_state import trained_by
from memfit.techniques.technique import Verdict
from memfit.trace.tracer import refuse_unready

# What a policy computes in, and the decimal digits that keeps: 11 and 8 bits, where float32 has 24.
_POLICIES = {"mixed_float16": ("float16", 3), "mixed_bfloat16": ("bfloat16", 2)}

# The loss scale each optimizer has reached, and the steps since it last changed. The wrapper itself is not kept: it
# holds the optimizer, which would then never be freed.
_reached: WeakKeyDictionary[Any, tuple[float, int]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Split:
    """The layers that get the policy, and why others that are float32 do not."""

    changed: Sequence[Any]
    kept: Sequence[tuple[Any, str]]


def check(model: Any, value: Any) -> Verdict:
    """Refuse what cannot compute in half precision; say how many layers would.

    Args:
        model: A built, compiled Keras model.
        value: `"mixed_float16"` or `"mixed_bfloat16"`.

    Raises:
        InputError: If the value is another one or a layer cannot; the layer is named.
    """
    split = _split(model, value)
    tried = _try_out(model, split.changed, value)
    half, digits = _POLICIES[value]
    changed = sum(map(_is_counted, split.changed))
    kept = [f"{layer.name!r} ({reason})" for layer, reason in split.kept if _is_counted(layer)]
    named = ", ".join(kept[:3]) + (", ..." if len(kept) > 3 else "")
    staying = f"; {len(kept)} {'stay' if len(kept) > 1 else 'stays'} float32: {named}" if kept else ""
    untried = "" if tried else "; not tried out, because the model does not say what its inputs are"
    return Verdict(
        "close",
        f"{changed} of {changed + len(kept)} layers compute in {half}, which keeps {digits} digits of 7{staying}; "
        f"variables and losses are float32 all along{untried}",
    )


@contextmanager
def applied(model: Any, value: Any) -> Iterator[None]:
    """Let the model compute in half precision for the duration."""
    split = _split(model, value)
    with ExitStack() as stack:
        for each in model._flatten_layers():
            if isinstance(each, keras().Model):  # a model inside may have been trained or asked on its own
                stack.enter_context(retraced(each))
        stack.enter_context(_policy_on(split.changed, value))
        stack.enter_context(_scaled_loss(model, value))
        yield


@contextmanager
def _policy_on(layers: Sequence[Any], value: str) -> Iterator[None]:
    policy = keras().dtype_policies.get(value)
    before = [(layer, layer._dtype_policy) for layer in layers]
    try:
        for layer in layers:
            # Not by the property: it would write into a policy map that layers share.
            layer._dtype_policy = policy
        yield
    finally:
        for layer, own in before:
            layer._dtype_policy = own


@contextmanager
def _scaled_loss(model: Any, value: str) -> Iterator[None]:
    """Scale the loss, without which small gradients are 0 in float16; bfloat16 has the range of float32."""
    own = model.optimizer
    if value != "mixed_float16" or isinstance(own, keras().optimizers.LossScaleOptimizer):
        yield
        return
    factor = own.loss_scale_factor  # the wrapper takes it away
    wrapper = None
    try:
        wrapper = _wrapper(model, own)
        with trained_by(model, wrapper):
            yield
    finally:
        own.loss_scale_factor = factor
        if wrapper is not None and wrapper.built:
            _reached[own] = float(wrapper.dynamic_scale.numpy()), int(wrapper.step_counter.numpy())


def _wrapper(model: Any, own: Any) -> Any:
    scale, steps = _reached.get(own, (None, 0))
    start = {} if scale is None else {"initial_scale": scale}
    wrapper = keras().optimizers.LossScaleOptimizer(own, name="loss_scale_optimizer", **start)
    if own.built:
        # Building the wrapper builds what it wraps; an optimizer of the user's own may start from zero then.
        own.build = lambda _variables: None
        try:
            with model.distribute_strategy.scope():
                wrapper.build(own._trainable_variables)
        finally:
            del own.build
        wrapper.step_counter.assign(steps)
    return wrapper


def _split(model: Any, value: Any) -> _Split:
    """Sort the layers, and refuse what can be seen without tracing."""
    if not isinstance(value, str) or value not in _POLICIES:
        raise InputError(f"precision must be one of {', '.join(map(repr, _POLICIES))}; got {value!r}.")
    refuse_unready(model)
    layers = [each for each in model._flatten_layers() if not isinstance(each, keras().layers.InputLayer)]
    for layer in layers:
        _refuse_layer(layer, value)
    if value == "mixed_float16":
        _refuse_unscaled_loss(model)
    if any(_policy_of(layer).name in _POLICIES for layer in layers):
        # Mixed already: what is float32 in it was meant to be.
        changed = [layer for layer in layers if _policy_of(layer).name in _POLICIES]
        kept = [(layer, "as built") for layer in layers if _policy_of(layer).name == "float32"]
        return _Split(changed, kept)
    reasons = _reasons_for_float32(model, layers)
    floating = [layer for layer in layers if _policy_of(layer).name == "float32"]
    return _Split(
        [layer for layer in floating if id(layer) not in reasons],
        [(layer, reasons[id(layer)]) for layer in floating if id(layer) in reasons],
    )


def _reasons_for_float32(model: Any, layers: Sequence[Any]) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for layer in layers:
        if any(each.__module__.startswith("keras.src.layers.preprocessing") for each in type(layer).__mro__):
            # Raw data may go beyond float16's 65504; nothing here is kept for the way back.
            reasons[id(layer)] = "reads data"
        elif layer.activity_regularizer is not None:
            # Sums over activations overflow, and Keras cannot add a half precision loss to a float32 one.
            reasons.update((id(each), "adds a loss") for each in layer._flatten_layers())
    reasons.update((id(each), "gives an output") for each in _output_layers(model))
    return reasons


def _output_layers(model: Any) -> Iterator[Any]:
    """The layers whose results leave the model; none for a subclassed model, which does not tell."""
    # A Sequential model keeps its outputs in the Functional model inside it, where it has one.
    functional = getattr(model, "_functional", None) or model
    waiting = keras().tree.flatten(getattr(functional, "_outputs_struct", []))
    if not waiting and isinstance(model, keras().Sequential):
        yield from model.layers[-1]._flatten_layers()
    seen: set[int] = set()
    while waiting:
        tensor = waiting.pop()
        operation, node, _ = tensor._keras_history
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if isinstance(operation, keras().Model):
            yield from _output_layers(operation)
        elif isinstance(operation, keras().Layer):
            yield from operation._flatten_layers()
        else:
            # A plain operation has no policy: it computes in what it is given.
            waiting.extend(operation._inbound_nodes[node].input_tensors)


def _refuse_layer(layer: Any, value: str) -> None:
    policy = _policy_of(layer)
    if policy.quantization_mode is not None:
        raise InputError(
            f"layer {layer.name!r} is quantized ({policy.name}), and precision={value!r} works on float32 layers. "
            "Load the model as it was before quantize(), or plan without precision."
        )
    if policy.compute_dtype == "float64":
        raise InputError(
            f"layer {layer.name!r} computes in float64, which precision={value!r} would undo. "
            'Build the model with keras.config.set_floatx("float32"), or plan without precision.'
        )
    # Keras's own layers without autocast (Embedding, LayerNormalization, ...) cast by themselves.
    if not layer.autocast and not _class_with_call(layer).__module__.startswith("keras."):
        raise InputError(
            f"layer {layer.name!r} has autocast=False, so what it computes in would not follow {value!r}. "
            "Leave autocast on in its __init__, or plan without precision."
        )


def _refuse_unscaled_loss(model: Any) -> None:
    """A training step that does not scale its loss would have its gradients divided by the scale all the same."""
    step = type(model).train_step
    names = _names(step.__code__) if hasattr(step, "__code__") else set()
    # Keras's own scales it, and so does one that calls it.
    if step.__module__.startswith("keras.") or {"scale_loss", "train_step"} & names:
        return
    raise InputError(
        f"{type(model).__name__}.train_step does not scale its loss, and float16 loses small gradients without. "
        'Put `loss = self.optimizer.scale_loss(loss)` before its gradients, or take precision="mixed_bfloat16".'
    )


def _names(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _policy_of(layer: Any) -> Any:
    policy = layer.dtype_policy
    if isinstance(policy, keras().dtype_policies.DTypePolicyMap):
        return policy[layer.path] if layer.path else policy.default_policy
    return policy


def _class_with_call(layer: Any) -> type:
    return next(each for each in type(layer).__mro__ if "call" in vars(each))


def _is_counted(layer: Any) -> bool:
    """Whether people would call it a layer: a model around layers is none."""
    return not layer._layers


def _try_out(model: Any, layers: Sequence[Any], value: str) -> bool:
    """Trace a training-mode forward pass in the policy, run nothing, and say whether that was possible."""
    inputs = _input_specs(model)
    if inputs is None or not all(layer.built for layer in model._flatten_layers()):
        return False
    try:
        with _policy_on(layers, value):
            added = _trace_forward(model, inputs)
    except Exception as error:
        try:
            _trace_forward(model, inputs)
        except Exception:  # noqa: BLE001 (the model's code raises what it likes)
            return False  # it is not the policy: what is known of the inputs is wrong, or it only runs eagerly
        said = next(iter(str(error).strip().splitlines()), "").rstrip(".")
        raise InputError(
            f"layer {_where(error, model)!r} cannot compute in {_POLICIES[value][0]}: {type(error).__name__}: {said}. "
            "Let its call() take the dtype from its inputs or from self.compute_dtype, or plan without precision."
        ) from error
    for name, dtype in added:
        if dtype in ("float16", "bfloat16"):
            raise InputError(
                f"layer {name!r} adds a loss in {dtype}, which Keras cannot add to the float32 loss of the model. "
                'Write self.add_loss(keras.ops.cast(loss, "float32")), or plan without precision.'
            )
    return True


def _input_specs(model: Any) -> Any:
    tf = tensorflow()
    structure = getattr(getattr(model, "_functional", None) or model, "_inputs_struct", None)
    if structure is not None:
        return keras().tree.map_structure(_spec, structure)
    shapes = list((model._build_shapes_dict or {}).values())
    if len(shapes) != 1 or not isinstance(shapes[0], tuple) or not all(isinstance(n, int | None) for n in shapes[0]):
        return None
    # A subclassed model knows the shape it was built with, but not the type; if float32 is wrong, nothing is tried.
    return tf.TensorSpec([None, *shapes[0][1:]], "float32")


def _spec(tensor: Any) -> Any:
    tf = tensorflow()
    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(tensor.shape, tensor.dtype)
    if getattr(tensor, "ragged", False):
        return tf.RaggedTensorSpec(tensor.shape, tensor.dtype)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _trace_forward(model: Any, inputs: Any) -> list[tuple[str, str]]:
    """Trace into a graph that is thrown away; returns the layers that added losses, and in which type."""
    added: list[tuple[str, str]] = []
    layers = model._flatten_layers()

    def forward(x: Any) -> None:
        # Stateless: nothing that layers assign or add on the way stays with them.
        with keras().StatelessScope(collect_losses=True) as scope:
            if model._call_has_training_arg:
                model(x, training=True)
            else:
                model(x)
            for layer in layers:
                added.extend((layer.name, each.dtype.name) for each in scope.losses if id(each) in layer._loss_ids)

    with _as_they_were(layers), _whole_tracebacks():
        tensorflow().function(forward, autograph=False).get_concrete_function(inputs)
    return added


@contextmanager
def _as_they_were(layers: Sequence[Any]) -> Iterator[None]:
    """Keep what every call changes on a layer."""
    before = [(layer, list(layer._losses), set(layer._loss_ids), layer._called) for layer in layers]
    try:
        yield
    finally:
        for layer, losses, loss_ids, called in before:
            layer._losses.clear()
            layer._losses.extend(losses)
            layer._loss_ids.clear()
            layer._loss_ids.update(loss_ids)
            layer._called = called


@contextmanager
def _whole_tracebacks() -> Iterator[None]:
    """Have Keras leave its own frames in tracebacks: they tell which layer raised."""
    config = keras().config
    filtering = config.is_traceback_filtering_enabled()
    config.disable_traceback_filtering()
    try:
        yield
    finally:
        if filtering:
            config.enable_traceback_filtering()


def _where(error: BaseException, model: Any) -> str:
    """The name of the innermost layer or operation that the error passed through."""
    found, frame = model, error.__traceback__
    while frame is not None:
        inside = frame.tb_frame.f_locals.get("self")
        found = inside if isinstance(inside, keras().Operation) else found
        frame = frame.tb_next
    return str(found.name)
