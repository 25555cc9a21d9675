"""What is kept of callbacks, and how it is given back."""

import pickle
from collections import defaultdict

import numpy as np

from memfit.script.fit_state import known, put_back


class Callback:
    def __init__(self, losses):
        self.losses = losses
        self.best = np.inf
        self.best_weights = [np.ones(3)]
        self.seen = {"a": 1}
        self.params = {"epochs": 3}
        self.compare = min
        self.model = object()
        self.mixed = [1, object()]


def test_plain_data_is_kept_and_nothing_else():
    assert set(known(Callback([]))) == {"losses", "best", "best_weights", "seen"}


def test_a_list_the_script_holds_as_well_stays_the_same_list():
    losses = []
    callback = Callback(losses)
    put_back([callback], [{"losses": [0.5, 0.4], "best": 0.4, "seen": {"b": 2}}])
    assert losses == [0.5, 0.4]
    assert callback.losses is losses
    assert (callback.best, callback.seen) == (0.4, {"b": 2})


def test_plain_data_that_cannot_be_pickled_is_left_out():
    class Local(dict):
        """Of the script's, in a function."""

    callback = Callback([])
    callback.counts = defaultdict(lambda: 0, a=1)
    callback.lists = defaultdict(list, a=[1])
    callback.local = Local(a=1)
    callback.itself = [1]
    callback.itself.append(callback.itself)
    callback.objects = np.array([lambda: None], dtype=object)
    kept = known(callback)
    assert set(kept) == {"losses", "best", "best_weights", "seen", "lists"}
    pickle.dumps(kept)


def test_a_callback_without_attributes_has_nothing_to_keep():
    class Slots:
        __slots__ = ("best",)

    assert known(Slots()) == {}
