"""One segment of a traced step that is run twice: for its results, and again in the backward pass for its gradients.

A segment is a function of tensors alone: weights, seeds and statistics go in, new seeds and statistics come out. Run a
second time with what went in the first time, it draws the same dropout masks and changes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from memfit.compat.graph_order import operation_count
from memfit.compat.scope import own_gradient, state_scope
from memfit.framework import tensorflow
from memfit.techniques.gradient_order import weights_before_inputs
from memfit.techniques.tensor_parts import TensorParts

Compute = Callable[[Any], Any]


class RecomputedSegment:
    """A function that calls layers, run so that only what goes in is kept for the backward pass.

    Args:
        compute: From one structure of tensors to another.
        layers: The layers it calls. Variables of others are found when they are read.
        model: Who is trained: the owner of the losses that layers add.
    """

    def __init__(self, compute: Compute, layers: Iterable[Any], model: Any) -> None:
        self.compute, self.model = compute, model
        layers = list(layers)
        trained = {id(each): each for layer in layers for each in layer.trainable_variables}
        every = {id(each): each for layer in layers for each in layer.variables}
        self.weights = list(trained.values())
        self.state = [each for key, each in every.items() if key not in trained]

    def run(self, arguments: Any) -> Any:
        """The function's result; updates of variables are written and losses added, once."""
        tf = tensorflow()
        given = TensorParts(arguments)
        # Not `value`: under mixed precision that is rounded already.
        weights = [tf.convert_to_tensor(each._value) for each in self.weights]
        state = [tf.stop_gradient(each._value) for each in self.state]
        kept = [each for each in given.masks if each is not None]
        forward: list[_Forward] = []

        def with_gradient(*tensors: Any) -> Any:
            made = self._compute(given, tensors, (*zip(self.state, state, strict=True),), kept)
            forward.append(made)
            named = (*zip(self.state, state, strict=True), *made.read)

            def gradient(*upstream: Any, variables: Sequence[Any] | None = None) -> Any:
                found = self._backward(given, tensors, named, kept, upstream[: len(made.targets)], variables or ())
                return (found[: len(tensors)], found[len(tensors) :]) if variables else found

            return made.flat, gradient

        flat = tf.custom_gradient(with_gradient)(*given.tensors, *weights)
        return forward[-1].finished(list(flat), self.model)

    def _compute(
        self, given: TensorParts, tensors: Sequence[Any], state: Sequence[tuple[Any, Any]], masks: Sequence[Any]
    ) -> "_Forward":
        count = len(given.tensors)
        inside = given.rebuilt([tensorflow().identity(each) for each in tensors[:count]], masks)
        with state_scope([*zip(self.weights, tensors[count:], strict=True), *state]) as scope:
            result = self.compute(inside)
        return _Forward(TensorParts(result), scope)

    def _backward(
        self,
        given: TensorParts,
        tensors: Sequence[Any],
        state: Sequence[tuple[Any, Any]],
        masks: Sequence[Any],
        upstream: Sequence[Any],
        variables: Sequence[Any],
    ) -> list[Any]:
        """Gradients for the tensors, then for variables that nobody named."""
        tf = tensorflow()
        owners = [variable for variable, _ in state]
        unnamed = {id(each) for each in variables}

        def body(tensors: Any, values: Any, masks: Any, upstream: Any) -> list[Any]:
            with tf.GradientTape() as tape:
                tape.watch([each for each in tensors if _differentiable(each)])
                before = [
                    own_gradient(value, tf.convert_to_tensor(owner._value)) if id(owner._value) in unnamed else value
                    for owner, value in zip(owners, values, strict=True)
                ]
                again = self._compute(given, tensors, list(zip(owners, before, strict=True)), masks)
            pairs = [
                pair
                for pair in zip(again.targets, upstream, strict=True)
                if _differentiable(pair[0]) and not _absent(pair[1])
            ]
            if not pairs:
                return [None] * (len(tensors) + len(variables))
            targets, gradients = zip(*pairs, strict=True)
            since = operation_count()
            found = list(tape.gradient(list(targets), [*tensors, *variables], output_gradients=list(gradients)))
            if since and not self.model.jit_compile:
                weights_before_inputs(found[len(given.tensors) :], since)
            return _weights_first(found, len(given.tensors))

        values = [value for _, value in state]
        if self.model.jit_compile:
            # XLA would find the forward pass's values again and keep them; the barrier makes these others.
            arguments = (list(tensors), values, list(masks), list(upstream))
            flat = _behind(
                tf.nest.flatten(arguments),
                import_module("tensorflow.compiler.tf2xla.ops.gen_xla_ops").xla_optimization_barrier,
            )
            return body(*tf.nest.pack_sequence_as(arguments, flat))
        # So would Grappler; it leaves this kind of identity alone, which waits for the gradients from behind. And the
        # layout optimiser passes through it: around another kind it would keep the tensors in both layouts.
        count = len(given.tensors)
        with tf.control_dependencies([each for each in upstream if each is not None]):
            again = _behind(
                tensors[:count],
                lambda inputs: [tf.raw_ops.PreventGradient(input=each, message="recomputed") for each in inputs],
            )
        return body([*again, *tensors[count:]], values, masks, upstream)


class _Forward:
    """What a segment computed: its result, and what layers did besides."""

    def __init__(self, result: TensorParts, scope: Any) -> None:
        self.result, self.losses, self.updates, self.read = result, list(scope.losses), scope.updates, scope.read
        self.masks = [each for each in result.masks if each is not None]
        self.targets = [*result.tensors, *self.losses]
        self.flat = (*self.targets, *(value for _, value in self.updates), *self.masks)

    def finished(self, flat: list[Any], model: Any) -> Any:
        """The result outside of the segment, with losses added and updates written."""
        tensors = [flat.pop(0) for _ in self.result.tensors]
        self._add_losses([flat.pop(0) for _ in self.losses], model)
        for variable, _ in self.updates:
            variable.assign(flat.pop(0))
        return self.result.rebuilt(tensors, flat)

    def _add_losses(self, losses: list[Any], model: Any) -> None:
        layers = list(model._flatten_layers()) if losses else ()
        for inside, loss in zip(self.losses, losses, strict=True):
            for layer in layers:
                if id(inside) in layer._loss_ids:
                    layer._loss_ids.discard(id(inside))
                    layer.add_loss(loss)
                    break


def _differentiable(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def _absent(gradient: Any) -> bool:
    """Whether the loss does not depend on an output: TensorFlow fills in zeros where a plain step has no gradient.

    An optimizer leaves a weight without gradient alone; with a gradient of zeros it decays it, for example.
    """
    tf = tensorflow()
    if gradient is None or tf.executing_eagerly() or not isinstance(gradient, tf.Tensor):
        return gradient is None
    if gradient.op.type == "ZerosLike":
        return True
    filled = gradient.op.inputs[1] if gradient.op.type == "Fill" else gradient
    if filled.op.type != "Const":
        return False
    value = tf.get_static_value(filled)
    return value is not None and not value.any()


def _weights_first(gradients: list[Any], inputs: int) -> list[Any]:
    """Gradients of a segment, those of its inputs after those of its weights.

    Sums for the weights of a normalization would otherwise run late, and hold whole tensors until then: a VAE took 91 %
    of its plain peak, and takes 22 % this way.
    """
    tf = tensorflow()
    weights = [each for each in gradients[inputs:] if each is not None]
    if not weights or not inputs:
        return gradients
    with tf.control_dependencies(tf.nest.flatten(weights, expand_composites=True)):
        first = [each if each is None else tf.identity(each) for each in gradients[:inputs]]
    return [*first, *gradients[inputs:]]


def _behind(tensors: Sequence[Any], barrier: Callable[[Sequence[Any]], Sequence[Any]]) -> list[Any]:
    """Tensors behind a barrier that has no gradient of its own; gradients of gradients pass through it."""
    record = import_module("tensorflow.python.eager.record")
    with record.stop_recording():
        behind = list(barrier(tensors))
    record.record_operation("recomputed", behind, list(tensors), lambda *gradients: gradients)
    return behind
