"""The order in which fallbacks are tried."""

import keras
from keras import layers

import memfit
from memfit.train.fallbacks import smaller_plans


def network(normalised):
    body = [layers.BatchNormalization() if normalised else layers.Dropout(0.1) for _ in range(20)]
    model = keras.Sequential([keras.Input((8,)), *body, layers.Dense(2)])
    model.compile("sgd", "mse", jit_compile=False)
    return model


def ways(normalised, numerics):
    return [plan.techniques for plan in smaller_plans(network(normalised), memfit.Plan(), 8, numerics)]


def test_slices_come_first_where_they_give_the_same_result():
    found = ways(normalised=False, numerics="exact")
    assert found[:3] == [{"micro_batch": 4}, {"micro_batch": 2}, {"micro_batch": 1}]
    # Where they turn out not to, recomputing is left.
    assert [each.keys() for each in found[3:-1]] == [{"remat"}] * len(found[3:-1])
    assert found[-1].keys() == {"micro_batch", "remat"}


def test_batch_normalisation_is_only_recomputed_where_it_has_to_be_exact():
    assert {name for way in ways(normalised=True, numerics="exact") for name in way} == {"remat"}


def test_the_exact_ways_come_before_those_that_are_close():
    found = ways(normalised=True, numerics="close")
    sliced = ["micro_batch" in way for way in found]
    assert sliced == sorted(sliced)
    assert sliced[-1]


def test_other_numbers_of_segments_are_tried_too():
    found = smaller_plans(network(normalised=True), memfit.Plan(remat=8), 8, "exact")
    assert [plan.techniques for plan in found] == [{"remat": 16}, {"remat": 4}]
