"""`memfit run` on scripts that train several models: each as under python, whatever was decided for those before."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

# One model per fold, as in a cross-validation: Keras numbers the layers of each anew. Batch normalization keeps them
# from being cut into slices, so that plans name layers. In float64, so that only mistakes show.
SCRIPT = """
    import json
    import keras
    import numpy as np

    keras.config.set_floatx("float64")
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2000, 32)), random.normal(size=(2000, 1))

    def built():
        tensor = inputs = keras.Input((32,))
        for _ in range(10):
            tensor = keras.layers.Dense(128)(tensor)
            tensor = keras.layers.Activation("gelu")(keras.layers.BatchNormalization()(tensor)) + tensor
        return keras.Model(inputs, keras.layers.Dense(1)(tensor))

    def coupled(true, predicted):
        return keras.ops.std(predicted - true)

    losses = []
    for loss in ("mse", "mae", coupled):
        model = built()
        model.compile("adam", loss)
        losses += model.fit(x, y, batch_size=1000, epochs=2, shuffle=False, verbose=0).history["loss"]

    class Late(keras.Model):
        # Keras builds it in the first step; its weights depend on what was drawn before.
        def build(self, shape):
            self.hidden = [keras.layers.Dense(128, activation="gelu") for _ in range(24)]
            self.head = keras.layers.Dense(1)
        def call(self, tensor):
            for layer in self.hidden:
                tensor = layer(tensor)
            return self.head(tensor)

    late = Late()
    late.compile("adam", "mse")
    losses += late.fit(x, y, batch_size=1000, epochs=2, shuffle=False, verbose=0).history["loss"]

    inputs = keras.Input((32,))
    same = keras.Model(inputs, keras.layers.ActivityRegularization(l2=0.1)(inputs))
    same.compile("adam", "mse")
    losses += same.fit(x, x + 1, batch_size=1000, shuffle=False, verbose=0).history["loss"]
    print(json.dumps(losses))
"""


def trained(command, folder):
    (folder / "train.py").write_text(textwrap.dedent(SCRIPT))
    base = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "KERAS_", "CUDA_"))}
    done = subprocess.run(
        [*command, "train.py"],
        cwd=folder,
        env={**base, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    return done, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_plan_holds_for_every_model_of_the_architecture(tmp_path):
    _, expected = trained([sys.executable], tmp_path)
    done, losses = trained([sys.executable, "-m", "memfit", "run", "--budget", "48MiB"], tmp_path)
    assert "remat" in done.stderr
    assert done.stderr.count("predicted peak without changes") == 3, "each architecture is planned once"
    assert "micro_batch" in done.stderr
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
