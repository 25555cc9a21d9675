"""`configure` on a real GPU. Run these by hand when device configuration changes: CI has no GPU."""

import pytest

from memfit.hardware.probe import probe

pytestmark = pytest.mark.gpu
VISIBLE = {"CUDA_VISIBLE_DEVICES": "0"}


@pytest.fixture(scope="module", autouse=True)
def needs_gpu():
    if not probe(timeout=120).gpus:
        pytest.skip("TensorFlow sees no GPU here")


def test_a_limit_really_limits(run_child):
    outcome, current, limit = run_child(
        """
        import memfit
        memfit.devices.configure(limit="1GiB")
        import tensorflow as tf
        kept = tf.ones([64, 2**20])
        try:
            tf.ones([1024, 2**20])
            outcome = "no error"
        except tf.errors.ResourceExhaustedError:
            outcome = "limited"
        (device,) = memfit.devices.memory()
        report([outcome, device.current, device.limit])
        """,
        **VISIBLE,
    )
    assert (outcome, limit) == ("limited", 2**30)
    assert 2**28 <= current < 2**28 + 2**20


def test_a_split_gives_two_gpus_with_their_own_limits(run_child):
    assert run_child(
        """
        import memfit
        memfit.devices.configure(split=["1GiB", "2GiB"])
        report([[device.device, device.limit] for device in memfit.devices.memory()])
        """,
        **VISIBLE,
    ) == [["GPU:0", 2**30], ["GPU:1", 2 * 2**30]]


def test_growth_is_really_on(run_child):
    assert run_child(
        """
        import memfit, subprocess
        memfit.devices.configure(growth=True)
        import tensorflow as tf
        tf.ones([1])
        report(tf.config.experimental.get_memory_growth(tf.config.list_physical_devices("GPU")[0]))
        """,
        **VISIBLE,
    )


def test_a_limit_after_the_scripts_own_growth_is_refused(run_child):
    assert "contradicts" in run_child(
        """
        import memfit, tensorflow as tf
        tf.config.experimental.set_memory_growth(tf.config.list_physical_devices("GPU")[0], True)
        try:
            memfit.devices.configure(limit="1GiB")
            report("accepted")
        except memfit.MemfitError as error:
            report(str(error))
        """,
        **VISIBLE,
    )


def test_more_than_the_card_has_is_refused(run_child):
    assert "more memory than" in run_child(
        """
        import memfit
        try:
            memfit.devices.configure(limit="2TiB")
            report("accepted")
        except memfit.MemfitError as error:
            report(str(error))
        """,
        **VISIBLE,
    )


def test_hiding_every_gpu_leaves_the_cpu(run_child):
    assert run_child(
        """
        import memfit
        memfit.devices.configure(visible=[], limit="1GiB")
        report([device.device for device in memfit.devices.memory()])
        """,
        **VISIBLE,
    ) == ["CPU:0"]


def test_the_driver_allocator_is_used(run_child):
    assert (
        run_child(
            """
        import memfit
        memfit.devices.configure(allocator="cuda_malloc_async")
        import tensorflow as tf
        tf.ones([64, 2**20])
        report(memfit.devices.memory()[0].peak)
        """,
            **VISIBLE,
        )
        >= 2**28
    )
