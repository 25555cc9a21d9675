"""No pipeline operation holds device memory. Run this by hand when pipelines change: CI has no GPU."""

import pytest

from memfit.hardware.probe import probe

pytestmark = pytest.mark.gpu
VISIBLE = {"CUDA_VISIBLE_DEVICES": "0"}

FIT = """
    import pathlib, tempfile
    import memfit
    memfit.devices.configure(growth=True)
    import keras, numpy as np, tensorflow as tf

    folder, batch = pathlib.Path(tempfile.mkdtemp()), 64
    with tf.device("CPU"):
        for index in range(320):
            path = folder / f"class{index % 2}" / f"{index}.jpg"
            path.parent.mkdir(exist_ok=True)
            pixels = tf.constant(np.random.default_rng(index).integers(0, 256, (300, 400, 3), np.uint8))
            path.write_bytes(tf.io.encode_jpeg(pixels).numpy())

    def peak(train, validation, inside=()):
        "The device's own peak of two epochs with validation, above what was there before."
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [keras.Input((224, 224, 3), dtype="uint8"), keras.layers.Rescaling(1 / 255), *inside]
            + [keras.layers.Conv2D(32, 3, strides=2, activation="relu") for _ in range(3)]
            + [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
        )
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        memfit.devices.reset_peak()
        before = memfit.devices.memory()[0].current
        model.fit(train, validation_data=validation, epochs=2, verbose=0, shuffle=False)
        return memfit.devices.memory()[0].peak - before

    def augmentation():
        return [keras.layers.RandomFlip(), keras.layers.RandomRotation(0.1), keras.layers.RandomContrast(0.2)]

    def pipeline(**settings):
        return memfit.data.image_folder(
            folder, image_size=224, batch_size=batch, validation_split=0.2, ram_budget="1GiB", seed=0, **settings
        )

    with tf.device("CPU"):
        one = tf.data.Dataset.from_tensors((tf.zeros([batch, 224, 224, 3], tf.uint8), tf.zeros([batch], tf.int32)))
"""


@pytest.fixture(scope="module", autouse=True)
def needs_gpu():
    if not probe(timeout=120).gpus:
        pytest.skip("TensorFlow sees no GPU here")


def test_the_pipeline_takes_nothing_of_the_device_but_its_batch(run_child):
    alone, fed, augmented_before, augmented_inside, batch = run_child(
        FIT
        + """
    alone = peak(one.repeat(4), one)
    fed = peak(*pipeline())
    before = peak(*pipeline(augment=keras.Sequential(augmentation())))
    inside = peak(*pipeline(), inside=augmentation())
    report([alone, fed, before, inside, batch * 224 * 224 * 3])
    """,
        **VISIBLE,
    )
    # The next batch may wait on the device while one is used; nothing else does.
    assert fed <= alone + batch
    assert augmented_before <= alone + batch
    assert augmented_inside > augmented_before


def test_building_a_pipeline_touches_no_device(run_child):
    before, after = run_child(
        FIT
        + """
    tf.ones([1])
    before = memfit.devices.memory()[0].current
    memfit.devices.reset_peak()
    train, validation = pipeline(augment=keras.Sequential(augmentation()))
    for _ in range(2):
        for images, labels in train:
            on = images.device
    report([before, memfit.devices.memory()[0].peak if on.endswith("CPU:0") else on])
    """,
        **VISIBLE,
    )
    assert after - before < 2**20
