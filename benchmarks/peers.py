"""What others offer against memory, as context managers around a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from memfit.techniques import remat
from memfit.techniques.layer_graph import layer_graph

_SEGMENTS = 6


@contextmanager
def recompute_grad(model: Any) -> Iterator[None]:
    """`tf.recompute_grad` around the segments memfit would choose; statistics and masks are as it leaves them."""
    import tensorflow as tf

    graph, last = layer_graph(model), layer_graph(model).last_use()
    parts = remat._with_the_rest(remat.segments(model, _SEGMENTS), len(graph.calls))
    original = model.call

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if not training:
            return original(inputs, training=training, mask=mask)
        values = dict(zip(graph.inputs, tf.nest.flatten(inputs), strict=True))
        for segment, recomputed in parts:
            calls = graph.calls[segment.start : segment.stop]
            made = {place for each in calls for place in each.outputs}
            needed = sorted({place for each in calls for place in each.inputs} - made)
            wanted = sorted(place for place in made if last.get(place, -1) >= segment.stop)

            def run(*tensors: Any, calls: Any = calls, needed: Any = needed, wanted: Any = wanted) -> Any:
                inside = dict(zip(needed, tensors, strict=True))
                remat._run_calls(calls, inside, {"training": True})
                return tuple(inside[place] for place in wanted)

            results = (tf.recompute_grad(run) if recomputed else run)(*(values[place] for place in needed))
            values |= dict(zip(wanted, results, strict=True))
        return values[graph.outputs[0]]

    model.call = call
    try:
        yield
    finally:
        del model.call
