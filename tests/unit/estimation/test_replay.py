import pytest

from memfit.estimation.bfc import OutOfMemory
from memfit.estimation.graph import GraphModel
from memfit.hardware.catalog import find_gpu
from memfit.units import GIB, MIB


@pytest.fixture
def step(builder):
    """A weight of 1 MiB with two slots, and two activations of 1 MiB a sample."""
    weight = builder.variable(MIB, drawn=True)
    slots = [builder.variable(MIB, "optimizer") for _ in range(2)]
    batch = builder.op("IteratorGetNext", shape=((262144, 0),))
    read = builder.op("ReadVariableOp", variable=weight, shape=((0, 262144),))
    hidden = builder.op("MatMul", batch, read, shape=((262144, 0),), layer="dense")
    gradient = builder.op("MatMul", hidden, batch, shape=((0, 262144),), part="backward")
    for slot in slots:
        builder.op("AssignAddVariableOp", variable=slot, shape=None, part="update", after=[gradient])
    return builder.build()


def test_the_peak_is_variables_batch_activation_and_gradient(step):
    found = GraphModel(step, find_gpu("h200")).predict(8, limit=GIB, growth=False)
    assert found.replay.steady_peak == pytest.approx(3 * MIB + 16 * MIB + MIB, rel=0.001)
    assert found.replay.between_steps == pytest.approx(3 * MIB, rel=0.001)
    assert found.replay.reserved == GIB


def test_the_peak_follows_the_batch(step):
    model = GraphModel(step, find_gpu("h200"))
    peaks = [model.predict(batch, limit=4 * GIB, growth=False).replay.steady_peak for batch in (8, 16, 32)]
    assert peaks[1] - peaks[0] == 16 * MIB
    assert peaks[2] - peaks[1] == 32 * MIB


def test_growth_reserves_regions_that_double(step):
    reserved = GraphModel(step, find_gpu("h200")).predict(8, limit=GIB, growth=True).replay.reserved
    assert (reserved + 2 * MIB) & (reserved + 2 * MIB - 1) == 0


def test_a_limit_that_is_too_small_is_out_of_memory(step):
    with pytest.raises(OutOfMemory):
        GraphModel(step, find_gpu("h200")).predict(8, limit=16 * MIB, growth=False)


def test_resident_data_counts(step):
    model = GraphModel(step, find_gpu("h200"))
    plain = model.predict(8, limit=GIB, growth=False).replay.steady_peak
    assert model.predict(8, limit=GIB, growth=False, resident=32 * MIB).replay.steady_peak == plain + 32 * MIB


def test_the_outcome_that_takes_more_decides(builder, step):
    builder.op("MatMul", 0, shape=((2 * 262144, 0),))
    larger = builder.build()
    both = type(step)(**{**{name: getattr(step, name) for name in step.__dataclass_fields__}, "otherwise": larger})
    found = GraphModel(both, find_gpu("h200")).predict(8, limit=GIB, growth=False)
    alone = GraphModel(step, find_gpu("h200")).predict(8, limit=GIB, growth=False)
    assert found.replay.steady_peak > alone.replay.steady_peak
    assert found.step is larger
