"""Rematerialization: the backward pass recomputes chosen segments of the model instead of keeping their insides.

A segment is a function of tensors alone: weights, seeds and statistics go in, new seeds and statistics come out. Run a
second time with what went in the first time, it draws the same dropout masks and changes nothing.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from memfit.errors import InputError
from memfit.framework import keras, tensorflow
from memfit.techniques.instance import refuse_own_train_step, retraced
from memfit.techniques.layer_graph import LayerCall, LayerGraph, Values, functional_of, layer_graph
from memfit.techniques.remat_placement import Segment, by_bytes, by_name
from memfit.techniques.technique import Verdict


def check(model: Any, value: Any) -> Verdict:
    """Refuse models that are no graph of layers, and layers that are not there."""
    refuse_own_train_step(model, "remat")
    found = segments(model, value)
    what = f"{len(found)} segment{'s' if len(found) > 1 else ''}"
    return Verdict("exact", f"{what} recomputed in the backward pass, with the same dropout masks and statistics")


@contextmanager
def applied(model: Any, value: int | Sequence[str]) -> Iterator[None]:
    """Give the model a call that recomputes when it trains."""
    graph = layer_graph(model)
    chosen = _with_the_rest(segments(model, value), len(graph.calls))
    functional = functional_of(model)
    original = model.call

    def call(inputs: Any, training: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        if not training:
            return original(inputs, training=training, mask=mask, **kwargs)
        return _run(model, functional, graph, chosen, inputs, mask, {"training": training, **kwargs})

    with retraced(model):
        model.call = call
        try:
            yield
        finally:
            del model.call


def segments(model: Any, value: Any) -> list[Segment]:
    """The segments a plan's value means for a model."""
    if isinstance(value, bool) or not isinstance(value, int | list | tuple):
        raise InputError(f"remat must be a number of segments or names of layers; got {value!r}.")
    graph = layer_graph(model)
    return by_bytes(graph, value) if isinstance(value, int) else by_name(graph, value)


def _with_the_rest(recomputed: list[Segment], count: int) -> list[tuple[Segment, bool]]:
    """All calls in segments, with whether each is recomputed."""
    parts: list[tuple[Segment, bool]] = []
    position = 0
    for segment in recomputed:
        if segment.start > position:
            parts.append((Segment(position, segment.start), False))
        parts.append((segment, True))
        position = segment.stop
    if position < count:
        parts.append((Segment(position, count), False))
    return parts


def _run(
    model: Any,
    functional: Any,
    graph: LayerGraph,
    parts: list[tuple[Segment, bool]],
    inputs: Any,
    mask: Any,
    context: dict[str, Any],
) -> Any:
    """What `Functional.call` does, segment by segment."""
    tree = keras().tree
    tensors = functional._standardize_inputs(inputs)
    for tensor, each in zip(tensors, tree.flatten(mask) if mask is not None else (), strict=False):
        if each is not None:
            _set_mask(tensor, each)
    values: Values = dict(zip(graph.inputs, tensors, strict=True))
    last = graph.last_use()
    for segment, recomputed in parts:
        calls = graph.calls[segment.start : segment.stop]
        if recomputed:
            made = {place for call in calls for place in call.outputs}
            needed = sorted({place for call in calls for place in call.inputs} - made)
            wanted = sorted(place for place in made if last.get(place, -1) >= segment.stop)
            values |= _Recomputed(calls, needed, wanted, context, jit=bool(model.jit_compile)).run(values)
        else:
            _run_calls(calls, values, context)
    outputs = tree.pack_sequence_as(functional._outputs_struct, [values[place] for place in graph.outputs])
    return outputs[0] if isinstance(outputs, list | tuple) and len(outputs) == 1 else outputs


def _run_calls(calls: Sequence[LayerCall], values: Values, context: dict[str, Any]) -> None:
    for call in calls:
        values |= dict(zip(call.outputs, call.run(values, context), strict=True))


class _Recomputed:
    """One segment in one traced step."""

    def __init__(
        self, calls: Sequence[LayerCall], needed: list[int], wanted: list[int], context: dict[str, Any], *, jit: bool
    ) -> None:
        self.calls, self.needed, self.wanted, self.context, self.jit = calls, needed, wanted, context, jit
        layers = {id(call.layer): call.layer for call in calls if isinstance(call.layer, keras().Layer)}
        self.layers = list(layers.values())
        trained = {id(each): each for layer in self.layers for each in layer.trainable_variables}
        every = {id(each): each for layer in self.layers for each in layer.variables}
        self.weights = list(trained.values())
        self.state = [each for key, each in every.items() if key not in trained]

    def run(self, values: Values) -> Values:
        """Run the segment; what it computes inside is not kept."""
        tf = tensorflow()
        tensors = [values[place] for place in self.needed]
        masks = [_mask(each) for each in tensors]
        state = [tf.stop_gradient(each.value) for each in self.state]
        outside = [each for each in masks if each is not None]

        def compute(tensors: Any, weights: Any, state: Any, outside: Any) -> tuple[list[Any], ...]:
            attached = iter(outside)
            inside: Values = {}
            for place, tensor, mask in zip(self.needed, tensors, masks, strict=True):
                inside[place] = tf.identity(tensor)
                if mask is not None:
                    _set_mask(inside[place], next(attached))
            mapping = [*zip(self.weights, weights, strict=True), *zip(self.state, state, strict=True)]
            with keras().StatelessScope(mapping, collect_losses=True) as scope:
                _run_calls(self.calls, inside, self.context)
            self.loss_owners = [self._owner(loss) for loss in scope.losses]
            made = [inside[place] for place in self.wanted]
            after = [scope.get_current_value(each) for each in self.state]
            return made, list(scope.losses), after, [_mask(each) for each in made]

        def with_gradient(*arguments: Any) -> Any:
            tensors = arguments[: len(self.needed)]
            weights = arguments[len(self.needed) :]
            made, losses, after, made_masks = compute(tensors, weights, state, outside)
            self.made_masks = [each is not None for each in made_masks]

            def gradient(*upstream: Any) -> Any:
                return self._backward(compute, tensors, weights, state, outside, upstream[: len(made) + len(losses)])

            return (*made, *losses, *after, *(each for each in made_masks if each is not None)), gradient

        weights = [tf.convert_to_tensor(each.value) for each in self.weights]
        results = list(tf.custom_gradient(with_gradient)(*tensors, *weights))
        made = [results.pop(0) for _ in self.wanted]
        for owner in self.loss_owners:
            owner.add_loss(results.pop(0))
        for variable in self.state:
            variable.assign(results.pop(0))
        for tensor, masked in zip(made, self.made_masks, strict=True):
            if masked:
                _set_mask(tensor, results.pop(0))
        return dict(zip(self.wanted, made, strict=True))

    def _backward(
        self, compute: Any, tensors: Any, weights: Any, state: Any, outside: Any, upstream: Sequence[Any]
    ) -> list[Any]:
        tf = tensorflow()

        def body(tensors: Any, weights: Any, state: Any, outside: Any, upstream: Any) -> list[Any]:
            sources = [*tensors, *weights]
            with tf.GradientTape() as tape:
                tape.watch([each for each in sources if each.dtype.is_floating])
                made, losses, _, _ = compute(tensors, weights, state, outside)
            targets = [*made, *losses]
            floating = [at for at, each in enumerate(targets) if each.dtype.is_floating]
            return list(
                tape.gradient(
                    [targets[at] for at in floating],
                    sources,
                    output_gradients=[upstream[at] for at in floating],
                    unconnected_gradients=tf.UnconnectedGradients.ZERO,
                )
            )

        arguments = (list(tensors), list(weights), list(state), list(outside), list(upstream))
        if self.jit:
            # XLA would find the forward pass's values again and keep them; the barrier makes these others.
            flat = tf.nest.flatten(arguments)
            barrier = import_module("tensorflow.compiler.tf2xla.ops.gen_xla_ops").xla_optimization_barrier
            return body(*tf.nest.pack_sequence_as(arguments, list(barrier(flat))))
        # So would Grappler; it leaves this kind of identity alone, which waits for the gradients from behind. And the
        # layout optimiser passes through it: around another kind it would keep the tensors in both layouts.
        with tf.control_dependencies([each for each in upstream if each is not None]):
            again = [tf.raw_ops.PreventGradient(input=each, message="recomputed") for each in tensors]
        return body(again, *arguments[1:])

    def _owner(self, loss: Any) -> Any:
        return next(layer for layer in self.layers for each in layer._flatten_layers() if id(loss) in each._loss_ids)


def _mask(tensor: Any) -> Any:
    return getattr(tensor, "_keras_mask", None)


def _set_mask(tensor: Any, mask: Any) -> None:
    tensor._keras_mask = mask
