"""TARGETs that lead to real Keras models, and what goes wrong on the way there."""

import textwrap

import pytest

MODELS = """
    import keras
    from keras import layers

    def layer_stack(*last):
        return keras.Sequential([keras.Input((8,)), layers.Dense(4), *last])

    def softmax(): return layer_stack(layers.Dense(3, activation="softmax"))
    def softmax_layer(): return layer_stack(layers.Dense(3), layers.Softmax())
    def logits(): return layer_stack(layers.Dense(3))
    def sigmoid(): return layer_stack(layers.Dense(1, activation="sigmoid"))
    def number(): return layer_stack(layers.Dense(1))

    def two_outputs():
        inputs = keras.Input((8,))
        outputs = {"kind": layers.Dense(5, activation="softmax")(inputs), "size": layers.Dense(1)(inputs)}
        return keras.Model(inputs, outputs)

    def shaped(input_shape=(16, 16, 3), weights="imagenet"):
        if weights is not None: raise ValueError("this would download")
        return keras.Sequential([keras.Input(input_shape), layers.Flatten(), layers.Dense(2)])

    def unbuilt(): return keras.Sequential([layers.Dense(2)])

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)
        def call(self, x): return self.dense(x)

    def compiled():
        model = number()
        model.compile(keras.optimizers.SGD(0.5), "mae", metrics=["mse"], jit_compile=True, steps_per_execution=3)
        return model

    def raises(): raise RuntimeError("the data is not here")
    def pair(): return number(), 1
    def nothing(): pass
    def with_lambda(): return layer_stack(layers.Lambda(lambda x: x * 2))
"""

PRELUDE = """
    import os, warnings
    os.chdir({folder!r})
    from memfit.trace.target import TargetError, load_target
    import keras

    def load(target, **given):
        return load_target(target, **{{"input_shape": None, "optimizer": None, "loss": None, "policy": None, **given}})

    def error(target, **given):
        try:
            return repr(load(target, **given))
        except TargetError as error:
            return str(error)
"""


@pytest.fixture
def run(run_child, tmp_path):
    """Run code in a folder that has `models.py`, with `load` and `error` at hand."""
    (tmp_path / "models.py").write_text(textwrap.dedent(MODELS))

    def run(code):
        return run_child(textwrap.dedent(PRELUDE.format(folder=str(tmp_path))) + textwrap.dedent(code))

    return run


def test_functions_become_compiled_models(run):
    found = run(
        """
        ready = set()
        def loss_of(name):
            model = load(f"models.py:{name}")
            ready.add((model.built, model.compiled, type(model.optimizer).__name__))
            loss = model.loss
            return loss if isinstance(loss, str) else [loss.name, loss.get_config()["from_logits"]]

        kept = load("models.py:compiled")
        other = load("models.py:compiled", optimizer="rmsprop", loss="mse")
        only_loss = load("models.py:compiled", loss="mse")
        report({
            "losses": {name: loss_of(name) for name in ("softmax", "softmax_layer", "logits", "sigmoid", "number")},
            "ready": sorted(ready),
            "two": dict(load("models:two_outputs").loss),
            "two given": dict(load("models:two_outputs", loss="mse").loss),
            "given": [load("models.py:softmax", optimizer="sgd", loss="mse").loss],
            "kept": [float(kept.optimizer.learning_rate), kept.loss, kept.jit_compile],
            "other": [type(other.optimizer).__name__, other.loss, other.jit_compile, other.steps_per_execution],
            "only loss": [float(only_loss.optimizer.learning_rate), only_loss.loss],
            "unbuilt": [load("models.py:unbuilt").built, load("models.py:unbuilt", input_shape=(6,)).input_shape],
            "subclassed": len(load("models.py:Subclassed", input_shape=(6,), loss="mse").weights),
            "shapes": [load("models.py:shaped").input_shape,
                       load("models.py:shaped", input_shape=(32, 32, 1)).input_shape],
        })
        """
    )
    sparse = "sparse_categorical_crossentropy"
    assert found["losses"] == {
        "softmax": sparse,
        "softmax_layer": sparse,
        "logits": [sparse, True],
        "sigmoid": "binary_crossentropy",
        "number": "mse",
    }
    assert found["ready"] == [[True, True, "Adam"]]
    assert found["two"] == {"kind": sparse, "size": "mse"}
    assert found["two given"] == {"kind": "mse", "size": "mse"}
    assert found["given"] == ["mse"]
    assert found["kept"] == [0.5, "mae", True]
    assert found["other"] == ["RMSprop", "mse", True, 3]
    assert found["only loss"] == [0.5, "mse"]
    assert found["unbuilt"] == [False, [None, 6]]
    assert found["subclassed"] == 2
    assert found["shapes"] == [[None, 16, 16, 3], [None, 32, 32, 1]]


def test_keras_applications_are_built_without_weights_in_the_given_precision(run):
    shape, dtypes, optimizer, loss, after, after_an_error = run(
        """
        model = load("keras.applications:MobileNetV2", input_shape=(64, 64, 3), policy="mixed_float16", optimizer="sgd")
        dtypes = sorted({layer.compute_dtype for layer in model.layers}), sorted({str(v.dtype) for v in model.weights})
        after = keras.config.dtype_policy().name
        error("models.py:raises", policy="float64")
        optimizer = type(model.optimizer).__name__
        report([model.input_shape, dtypes, optimizer, model.loss, after, keras.config.dtype_policy().name])
        """
    )
    assert shape == [None, 64, 64, 3]
    assert dtypes == [["float16"], ["float32"]]
    assert optimizer == "LossScaleOptimizer"
    assert loss == "sparse_categorical_crossentropy"
    assert after == after_an_error == "float32"


def test_every_error_says_what_is_wrong_and_what_to_write(run):
    said = run(
        """
        warnings.simplefilter("ignore")
        load("models.py:with_lambda").save("lambda.keras")
        load("models.py:compiled").save("good.keras")
        open("broken.keras", "w").write("not an archive")
        good = load("good.keras")
        try:
            load("models.py:raises")
        except TargetError as raised:
            chained = repr(raised.__cause__)
        report({
            "good": [good.loss, float(good.optimizer.learning_rate), good.jit_compile],
            "chained": chained,
            "raises": error("models.py:raises"),
            "pair": error("models.py:pair"),
            "nothing": error("models.py:nothing"),
            "shape": error("models.py:number", input_shape=(9,)),
            "unbuildable": error("models.py:Subclassed", input_shape=()),
            "subclassed": error("models.py:Subclassed", input_shape=(6,)),
            "optimizer": error("models.py:number", optimizer="addam"),
            "loss": error("models.py:number", loss="crossentropy"),
            "policy": error("models.py:number", policy="half"),
            "missing": error("missing.keras"),
            "broken": error("broken.keras"),
            "lambda": error("lambda.keras"),
            "saved policy": error("good.keras", policy="mixed_float16"),
            "module": error("no_such_package.models:build"),
        })
        """
    )
    assert said["good"] == ["mae", 0.5, True]
    assert said["chained"] == "RuntimeError('the data is not here')"
    assert "'models.py:raises' failed: RuntimeError: the data is not here" in said["raises"]
    assert "returned a tuple, not a Keras model" in said["pair"]
    assert "returned None, not a Keras model" in said["nothing"]
    assert "(8,), not (9,)" in said["shape"]
    assert "cannot be built for inputs of shape ()" in said["unbuildable"]
    assert "--loss" in said["subclassed"]
    assert "'addam'" in said["optimizer"]
    assert "adam, adamax" in said["optimizer"]
    assert "'crossentropy'" in said["loss"]
    assert "sparse_categorical_crossentropy" in said["loss"]
    assert "'half'" in said["policy"]
    assert "mixed_float16" in said["policy"]
    assert "there is no file 'missing.keras'" in said["missing"]
    assert "'broken.keras' cannot be loaded" in said["broken"]
    assert "Lambda" in said["lambda"]
    assert "file.py:function" in said["lambda"]
    assert "saved model" in said["saved policy"]
    assert "No module named 'no_such_package'" in said["module"]


def test_what_the_users_code_prints_stays_on_its_stdout(run, tmp_path):
    (tmp_path / "loud.py").write_text(
        "import keras\ndef build():\n    print('hello from build')\n    return models().x\n"
    )
    (tmp_path / "loud.py").write_text("import models\ndef build():\n    print('hello')\n    return models.number()\n")
    assert (
        run(
            """
            import contextlib, io
            with contextlib.redirect_stdout(io.StringIO()) as out:
                load("loud.py:build")
            report(out.getvalue())
            """
        )
        == "hello\n"
    )
