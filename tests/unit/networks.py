"""Steps made by hand: layers in a row with skips, a gradient for each."""

from memfit.hardware.catalog import find_gpu
from memfit.planning.search import Base, Search
from memfit.techniques.remat_step import CalledStep
from memfit.trace.step import Op, Step, Tensor, Variable

H200 = find_gpu("H200")


def tensor(size):
    return Tensor("float32", 4, ((1, 0), (0, size)))


def network(sizes, skips=()):
    """A step of layers of these sizes (numbers a sample), where a skip `(a, b)` lets layer `b` read layer `a` too."""
    ops = [Op("data", "IteratorGetNext", (), (), (tensor(4),))]
    inputs = [[at - 1, *(a for a, b in skips if b == at and a < at - 1)] for at in range(len(sizes))]
    for at, size in enumerate(sizes):
        reads = tuple((source + 1, 0) for source in inputs[at])
        ops.append(Op(f"net/layer{at}/Work", "Custom", reads, (), (tensor(size),), layer=f"layer{at}"))
    ops.append(Op("loss/Work", "Custom", ((len(sizes), 0),), (), (tensor(1),)))
    arriving = {len(sizes) - 1: [(len(ops) - 1, 0)]}
    for at in reversed(range(len(sizes))):
        gradients = arriving[at]
        if len(gradients) > 1:
            ops.append(Op(f"AddN_{at}", "AddN", tuple(gradients), (), (tensor(sizes[at]),), part="backward"))
            gradients = [(len(ops) - 1, 0)]
        for source in inputs[at]:
            reads = (gradients[0], (source + 1, 0), (at + 1, 0))
            made = tensor(sizes[source] if source >= 0 else 4)
            name = f"gradient_tape/net/layer{at}/Work_{source + 1}"
            ops.append(Op(name, "Custom", reads, (), (made,), layer=f"layer{at}", part="backward"))
            arriving.setdefault(source, []).append((len(ops) - 1, 0))
    variables = (Variable("weights", "parameter", 4096),)
    return Step("train", tuple(ops), variables, "GPU", (0,))


def called(step):
    names = [op.layer for op in step.ops if op.layer and op.part == "forward"]
    return CalledStep(step, tuple(names))


def search(step, batch=16, **settings):
    """A search over one step, whose peak is what its replay says."""
    one = called(step)
    base = Base({}, "exact", one, 1)
    found = Search(batch, H200, "graph", settings.pop("slices", None), settings.pop("starts", ()), [base], **settings)
    found.bases[0] = Base({}, "exact", one, found._replayed(base, (), batch))
    return found
