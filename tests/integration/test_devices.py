"""Each effect of `configure` is checked through TensorFlow, in a process of its own."""

import pytest


def test_a_limit_really_limits(run_child):
    outcome = run_child(
        """
        import memfit
        memfit.devices.configure(limit="256MiB")
        import tensorflow as tf
        small = tf.ones([32, 2**20])
        try:
            tf.ones([192, 2**20])
            outcome = "no error"
        except tf.errors.ResourceExhaustedError as error:
            outcome = type(error).__name__
        (device,) = memfit.devices.memory()
        report([outcome, device.device, device.current, device.limit])
        """
    )
    assert outcome == ["ResourceExhaustedError", "CPU:0", 128 * 2**20, 256 * 2**20]


def test_one_tensor_may_take_nearly_the_whole_limit(run_child):
    """TensorFlow's own CPU allocator grows by regions, of which none would be large enough."""
    peak_before, current = run_child(
        """
        import memfit
        from memfit.compat.cpu_allocator import take_one_region
        memfit.devices.configure(limit="64MiB")
        take_one_region(64 * 2**20)
        import tensorflow as tf
        # What a script sets before anything is computed can still be set.
        tf.config.threading.set_inter_op_parallelism_threads(1)
        (device,) = memfit.devices.memory()
        large = tf.ones([60, 2**18])
        report([device.peak, memfit.devices.memory()[0].current])
        """
    )
    assert peak_before == 0
    assert 60 * 2**20 <= current <= 64 * 2**20


def test_graphs_of_tensorflow_1_get_no_operation_more(run_child):
    """Their seeds follow the number of operations."""
    assert run_child(
        """
        import memfit
        from memfit.compat.cpu_allocator import take_one_region
        memfit.devices.configure(limit="64MiB")
        take_one_region(64 * 2**20)
        import tensorflow as tf
        tf.compat.v1.disable_eager_execution()
        tf.compat.v1.set_random_seed(1)
        drawn = tf.random.uniform(())
        with tf.compat.v1.Session() as session:
            value = float(session.run(drawn))
        report([each.name for each in tf.compat.v1.get_default_graph().get_operations()])
        """
    )[0].startswith("random_uniform")


def test_a_region_that_the_machine_does_not_give_is_not_taken(run_child):
    """Address space is limited to less than the limit: the allocator grows as TensorFlow has it."""
    outcome = run_child(
        """
        import resource
        import memfit
        import tensorflow as tf
        from memfit.compat.cpu_allocator import take_one_region
        memfit.devices.configure(limit="6GiB")
        take_one_region(6 * 2**30)
        taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 2**31, taken + 2**31))
        report(float(tf.reduce_sum(tf.ones([2**20]))))
        """
    )
    assert outcome == 2**20


def test_the_limit_works_when_tensorflow_was_imported_first(run_child):
    assert (
        run_child(
            """
        import tensorflow as tf, memfit
        memfit.devices.configure(limit="64MiB")
        try:
            tf.ones([32, 2**20])
            report("no error")
        except tf.errors.ResourceExhaustedError:
            report("limited")
        """
        )
        == "limited"
    )


def test_a_split_really_gives_two_devices(run_child):
    names, computed_on, limits = run_child(
        """
        import memfit
        configured = memfit.devices.configure(split=["64MiB", "32MiB"])
        import tensorflow as tf
        with tf.device("CPU:1"):
            result = tf.ones([2]) + 1
        report([configured.devices, result.device, [device.limit for device in memfit.devices.memory()]])
        """
    )
    assert names == ["CPU:0", "CPU:1"]
    assert computed_on.endswith("CPU:1")
    assert limits == [96 * 2**20] * 2


def test_the_peak_is_kept_until_it_is_reset(run_child):
    before, after, limit = run_child(
        """
        import memfit
        import tensorflow as tf
        memfit.devices.configure(limit="1GiB")
        tf.ones([64, 2**20])
        (before,) = memfit.devices.memory()
        memfit.devices.reset_peak()
        (after,) = memfit.devices.memory()
        report([before.peak, after.peak, after.limit])
        """
    )
    assert before >= 256 * 2**20
    assert after < 2**20
    assert limit == 2**30


def test_without_a_limit_the_limit_is_unknown_and_not_zero(run_child):
    assert run_child("import memfit; report([device.to_dict() for device in memfit.devices.memory()])") == [
        {"device": "CPU:0", "current_bytes": 0, "peak_bytes": 0, "limit_bytes": None}
    ]


def test_too_late_says_so_and_changes_nothing(run_child):
    error, code, environment = run_child(
        """
        import os, memfit, tensorflow as tf
        tf.ones([1])
        try:
            memfit.devices.configure(limit="1GiB")
        except memfit.MemfitError as caught:
            environment = [name for name in os.environ if "BFC" in name]
            report([f"{type(caught).__name__}: {caught}", caught.exit_code, environment])
        """
    )
    assert error.startswith("TooLateError: TensorFlow has already set its devices up")
    assert "at the top of the script" in error
    assert (code, environment) == (2, [])


def test_what_only_a_gpu_has_is_reported_as_ignored(run_child):
    applied, ignored = run_child(
        """
        import memfit
        done = memfit.devices.configure(growth=True, allocator="cuda_malloc_async", workspace="512MiB", visible=[0])
        report([done.applied, done.ignored])
        """
    )
    assert applied == []
    assert [each.split(":")[0] for each in ignored] == ["visible", "growth", "allocator cuda_malloc_async", "workspace"]


@pytest.mark.slow
def test_every_refusal_is_one_clear_sentence_before_anything_is_touched(run_child):
    refusals = run_child(
        """
        import os, memfit
        wrong = [
            dict(growth=True, limit="1GiB"),
            dict(growth=True, split=["1GiB", "1GiB"]),
            dict(limit="1GiB", split=["1GiB"]),
            dict(limit="1000TiB"),
            dict(limit="-1GiB"),
            dict(limit="5kb"),
            dict(split="2GiB"),
            dict(split=[]),
            dict(allocator="jemalloc"),
            dict(allocator="cuda_malloc_async", limit="1GiB"),
            dict(visible=[-1]),
        ]
        said = []
        for settings in wrong:
            try:
                memfit.devices.configure(**settings)
                said.append("accepted")
            except memfit.MemfitError as error:
                said.append(str(error))
        untouched = not any(name.startswith("TF_CPU") for name in os.environ)
        memfit.devices.configure(limit="1GiB")
        try:
            memfit.devices.configure(limit="2GiB")
        except memfit.MemfitError as error:
            said.append(str(error))
        report([said, untouched])
        """
    )
    said, untouched = refusals
    expected = [
        "contradict", "contradict", "contradict", "more memory than", "more than zero", "less than 1 MiB",
        "one size per logical device", "has no sizes", "is not one of", "does not keep to a limit", "GPU indices",
        "already called",
    ]  # fmt: skip
    assert len(said) == len(expected)
    for sentence, part in zip(said, expected, strict=True):
        assert part in sentence
    assert untouched


def test_growth_against_the_environment_is_refused(run_child):
    assert "unset TF_FORCE_GPU_ALLOW_GROWTH" in run_child(
        """
        import memfit
        try:
            memfit.devices.configure(growth=True)
        except memfit.MemfitError as error:
            report(str(error))
        """,
        TF_FORCE_GPU_ALLOW_GROWTH="false",
    )


def test_predicting_makes_slots_as_the_step_of_keras_does(run_child):
    """In a graph, where equal zeros are one buffer; made eagerly, they crash TensorFlow where memory runs out."""
    outcome = run_child(
        """
        import memfit

        memfit.devices.configure(limit="256MiB")
        import keras
        import numpy as np

        model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(1024)])
        model.compile("adam", "mse")
        memfit.estimate(model, 8, gpu="cpu", jit=False)
        slots = [each._value.read_value() for each in model.optimizer.variables if each.shape == (1024, 1024)]
        report([np.from_dlpack(each).ctypes.data for each in slots])
        """
    )
    assert len(outcome) == 2
    assert len(set(outcome)) == 1
