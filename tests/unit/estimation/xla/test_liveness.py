import math

import pytest

from memfit.estimation.xla.liveness import estimate_temporaries
from memfit.estimation.xla.program import Computation, Instruction, Program, Shape

KB = 1000


class Builder:
    """HLO by hand: every instruction is one array of so many bytes."""

    def __init__(self):
        self.instructions = []

    def add(self, opcode, *operands, size=KB, dimensions=None, **details):
        number = len(self.instructions) + 1
        shape = Shape("f32", dimensions or (size // 4,), math.prod(dimensions) * 4 if dimensions else size)
        self.instructions.append(Instruction(number, f"{opcode}.{number}", opcode, shape, operands=operands, **details))
        return number

    def program(self, root, aliases=None):
        return Program(1, {1: Computation(1, "main", tuple(self.instructions), root)}, aliases or {})

    def temporaries(self, root, aliases=None):
        return estimate_temporaries(self.program(root, aliases)).temp_bytes


def test_elementwise_work_between_two_kernels_costs_one_buffer_each():
    hlo = Builder()
    image, weights = hlo.add("parameter"), hlo.add("parameter")
    first = hlo.add("convolution", image, weights)
    scaled = hlo.add("multiply", first, first)
    shifted = hlo.add("add", scaled, scaled)
    active = hlo.add("maximum", shifted, shifted)
    second = hlo.add("convolution", active, weights)
    total = hlo.add("reduce", second, size=4)
    # Of the four values in between only the one the second convolution reads is stored.
    assert hlo.temporaries(total) == 2 * KB


def test_what_only_reductions_read_is_never_stored():
    hlo = Builder()
    image = hlo.add("parameter")
    product = hlo.add("multiply", image, image, size=100 * KB)
    assert hlo.temporaries(hlo.add("reduce", product, size=4)) == 4


def test_a_value_read_again_in_the_backward_pass_stays():
    hlo = Builder()
    image, weights = hlo.add("parameter"), hlo.add("parameter")
    activations = [image]
    for _ in range(3):
        activations.append(hlo.add("convolution", activations[-1], weights))
    gradient = hlo.add("convolution", activations[-1], weights)
    for kept in reversed(activations[:-1]):
        gradient = hlo.add("convolution", gradient, kept)
    total = hlo.add("reduce", gradient, size=4)
    assert hlo.temporaries(total) == 4 * KB


def test_a_variable_is_updated_in_place():
    hlo = Builder()
    weights, image = hlo.add("parameter", size=50 * KB), hlo.add("parameter")
    gradient = hlo.add("convolution", image, image, size=50 * KB)
    updated = hlo.add("subtract", weights, gradient, size=50 * KB)
    root = hlo.add("tuple", updated, size=50 * KB)
    assert hlo.temporaries(root, aliases={0: 0}) == 50 * KB
    assert hlo.temporaries(root) == 100 * KB


def test_expensive_work_that_two_kernels_need_is_done_once():
    def needed(opcode):
        hlo = Builder()
        image = hlo.add("parameter")
        shared = hlo.add(opcode, image, size=10 * KB)
        sums = [hlo.add("reduce", hlo.add("multiply", shared, shared, size=10 * KB), size=4) for _ in range(2)]
        return hlo.temporaries(hlo.add("tuple", *sums, size=8))

    assert needed("tanh") > 10 * KB
    assert needed("negate") < KB


def test_the_order_that_needs_less_is_taken():
    hlo = Builder()
    image = hlo.add("parameter")
    # In the module's order all the large ones exist before the first is reduced.
    large = [hlo.add("convolution", image, image, size=100 * KB) for _ in range(5)]
    sums = [hlo.add("reduce", each, size=4) for each in large]
    assert hlo.temporaries(hlo.add("tuple", *sums, size=20)) < 110 * KB


def test_views_and_spread_out_constants_have_no_bytes():
    hlo = Builder()
    image, zero = hlo.add("parameter"), hlo.add("constant", size=4)
    zeros = hlo.add("broadcast", zero, size=500 * KB)
    viewed = hlo.add("reshape", image)
    assert hlo.temporaries(hlo.add("reduce", hlo.add("convolution", viewed, zeros), size=4)) == pytest.approx(KB, abs=4)


def test_a_loop_needs_what_its_body_needs():
    inner = Builder()
    state = inner.add("parameter")
    wide = inner.add("convolution", state, state, size=70 * KB)
    inner.add("reduce", wide, size=KB)
    outer = Builder()
    looped = outer.add("while", outer.add("parameter"), called=(2,))
    program = Program(
        1,
        {
            1: Computation(1, "main", tuple(outer.instructions), looped),
            2: Computation(2, "body", tuple(inner.instructions), 3),
        },
    )
    assert estimate_temporaries(program).temp_bytes >= 70 * KB


def test_the_peak_is_explained_by_the_buffers_named():
    hlo = Builder()
    image = hlo.add("parameter")
    last = hlo.add("convolution", hlo.add("convolution", image, image, size=30 * KB), image, size=20 * KB)
    estimate = estimate_temporaries(hlo.program(hlo.add("reduce", last, size=4)))
    assert [buffer.size for buffer in estimate.at_peak] == [30 * KB, 20 * KB]
    assert estimate.temp_bytes == max(moment.live for moment in estimate.timeline)
    assert estimate.low < estimate.temp_bytes < estimate.high


def test_gradients_that_nobody_reads_are_not_computed():
    hlo = Builder()
    image, weights = hlo.add("parameter"), hlo.add("parameter")
    frozen = hlo.add("convolution", image, weights)
    trained = hlo.add("convolution", frozen, weights)
    for _ in range(5):
        hlo.add("convolution", trained, weights, size=100 * KB)  # the frozen layer's own gradient
    assert hlo.temporaries(hlo.add("reduce", trained, size=4)) == 2 * KB


def test_a_product_with_a_vector_is_fused_with_what_it_reads():
    # Bilinear resizing: nine neighbours of each pixel, weighted and summed.
    def needed(*, free):
        hlo = Builder()
        image = hlo.add("parameter", dimensions=(4, 4, 64))
        neighbours = hlo.add("gather", image, dimensions=(8, 8, 9, 64))
        weights = hlo.add("parameter", dimensions=(8, 8, 9, free) if free > 1 else (8, 8, 9))
        resized = hlo.add(
            "dot",
            weights,
            neighbours,
            dimensions=(8, 8, free, 64) if free > 1 else (8, 8, 64),
            contracting=((2,), (2,)),
        )
        moved = hlo.add("transpose", resized, dimensions=(64, 8, 8, free) if free > 1 else (64, 8, 8))
        return hlo.temporaries(hlo.add("convolution", moved, image, size=4))

    assert needed(free=1) == 8 * 8 * 64 * 4 + 4
    assert needed(free=2) >= 8 * 8 * 9 * 64 * 4


def test_a_product_that_sums_nothing_is_fused():
    hlo = Builder()
    gradient, weights = hlo.add("parameter", dimensions=(8, 8, 64)), hlo.add("parameter", dimensions=(8, 8, 9))
    spread = hlo.add("dot", weights, gradient, dimensions=(8, 8, 9, 64), contracting=((), ()))
    assert hlo.temporaries(hlo.add("scatter", spread, dimensions=(4, 4, 64))) == 4 * 4 * 64 * 4


def test_an_empty_step_needs_nothing():
    hlo = Builder()
    assert hlo.temporaries(hlo.add("parameter")) == 0


def test_the_zeros_of_a_pooling_gradient_exist_since_the_activation_that_shares_them():
    def needed(*, normalised):
        hlo = Builder()
        image, zero = hlo.add("parameter"), hlo.add("constant", size=4)
        zeros = hlo.add("broadcast", zero)
        result = hlo.add("convolution", image, image)
        if normalised:
            result = hlo.add("multiply", result, result)
        active = hlo.add("maximum", result, zeros)
        pooled = hlo.add("reduce-window", active, size=KB // 4)
        gradient = hlo.add("select-and-scatter", active, hlo.add("convolution", pooled, image, size=KB // 4))
        return hlo.temporaries(hlo.add("reduce", hlo.add("convolution", gradient, image), size=4))

    assert needed(normalised=False) == needed(normalised=True) + 2 * KB


def test_of_a_dropout_the_mask_is_kept_and_not_the_random_bits():
    hlo = Builder()
    image, weights = hlo.add("parameter", size=4 * KB), hlo.add("parameter")
    bits = hlo.add("rng-bit-generator", hlo.add("parameter"), size=4 * KB)
    mask = hlo.add("compare", hlo.add("convert", bits, size=4 * KB), size=KB)
    forward = hlo.add("convolution", hlo.add("select", mask, image, size=4 * KB), weights, size=4 * KB)
    backward = hlo.add("reduce", hlo.add("select", mask, forward, size=4 * KB), size=4)
    # What the convolution reads, what it writes, and the mask.
    assert hlo.temporaries(backward) == 9 * KB
