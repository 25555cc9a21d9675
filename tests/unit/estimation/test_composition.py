from memfit.estimation.composition import compose_graph
from memfit.estimation.graph import GraphModel
from memfit.hardware.catalog import find_gpu
from memfit.units import GIB, MIB


def test_the_kinds_add_up_to_the_peak_and_name_their_layers(builder):
    weight = builder.variable(MIB)
    builder.variable(2 * MIB, "optimizer")
    batch = builder.op("IteratorGetNext", shape=((65536, 0),))
    read = builder.op("ReadVariableOp", variable=weight, shape=((0, 262144),))
    hidden = builder.op("MatMul", batch, read, shape=((262144, 0),), layer="dense")
    builder.op("MatMul", hidden, batch, shape=((262144, 0),), part="backward", layer="dense")
    step = builder.build()
    found = GraphModel(step, find_gpu("h200")).predict(4, limit=GIB, growth=False, resident=MIB)
    peak = found.replay.steady_peak
    composition = compose_graph(found, 4, peak, MIB)
    kinds = composition.breakdown()
    assert sum(kinds.values()) == peak
    assert kinds["parameters"] == MIB
    assert kinds["optimizer_state"] == 2 * MIB
    assert kinds["activations"] == kinds["gradients"] == 4 * MIB
    assert kinds["input_batch"] == 2 * MIB
    assert composition.by_layer() == {"dense": 8 * MIB}
    assert composition.live[0].shape == (4 * 262144,)
    assert [moment.part for moment in composition.timeline][-1] == "backward"
    assert max(moment.in_use for moment in composition.timeline) == peak - MIB
