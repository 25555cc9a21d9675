"""One name for each thing of TensorFlow and Keras, however it was imported."""

import re

_KERAS = (
    "tensorflow.compat.v2.keras.", "tensorflow.python.keras.", "tensorflow.keras.", "tf_keras.", "keras.api.",
    "keras_core.", "keras.src.",
)  # fmt: skip
_PREFIXES = (
    ("tensorflow.compat.v2.", "tensorflow."),
    ("tensorflow.config.experimental.", "tensorflow.config."),
    ("tensorflow.math.", "tensorflow."),
    ("tensorflow.data.experimental.AUTOTUNE", "tensorflow.data.AUTOTUNE"),
    ("keras.preprocessing.image_dataset", "keras.utils.image_dataset"),
    ("keras.preprocessing.text_dataset", "keras.utils.text_dataset"),
    ("keras.preprocessing.timeseries_dataset", "keras.utils.timeseries_dataset"),
    ("keras.preprocessing.image.load_img", "keras.utils.load_img"),
    ("keras.preprocessing.image.img_to_array", "keras.utils.img_to_array"),
    ("keras.utils.image_utils.", "keras.utils."),
    ("keras.layers.Input", "keras.Input"),
    ("keras.engine.Input", "keras.Input"),
)
# keras.layers.core.Dense, keras.layers.experimental.preprocessing.RandomFlip, keras.models.Sequential.
_LAYER = re.compile(r"^keras\.layers\.(?:\w+\.)+(\w+)$")
_MODEL = re.compile(r"^keras\.(?:models|engine|engine\.\w+|Model)\.(Model|Sequential|Functional)$")
_CLASS = re.compile(r"^keras\.(losses|optimizers|applications|metrics)\.(?:[a-z_0-9]+\.)+([A-Z]\w+)$")


def canonical(dotted: str) -> str:
    """The name a thing has here.

    Example:
        >>> canonical("tensorflow.keras.models.Sequential"), canonical("tensorflow.math.reduce_sum")
        ('keras.Sequential', 'tensorflow.reduce_sum')
    """
    for prefix in _KERAS:
        if f"{dotted}.".startswith(prefix):
            dotted = f"keras.{dotted[len(prefix) :]}".rstrip(".")
            break
    for prefix, short in _PREFIXES:
        if dotted.startswith(prefix):
            dotted = short + dotted[len(prefix) :]
    if dotted.startswith("keras."):
        dotted = _LAYER.sub(r"keras.layers.\1", dotted)
        dotted = _MODEL.sub(r"keras.\1", dotted)
        dotted = _CLASS.sub(r"keras.\1.\2", dotted)
    return dotted


_STARS = {
    "keras.layers": (
        "Activation Add Average AveragePooling2D BatchNormalization Bidirectional Concatenate Conv1D Conv2D "
        "Conv2DTranspose Conv3D Convolution2D Dense DepthwiseConv2D Dropout Embedding Flatten GRU "
        "GlobalAveragePooling2D GlobalMaxPooling2D Input LSTM Lambda Layer LayerNormalization MaxPool2D MaxPooling2D "
        "MultiHeadAttention RandomBrightness RandomContrast RandomCrop RandomFlip RandomRotation RandomTranslation "
        "RandomZoom ReLU Rescaling Reshape Resizing SeparableConv2D SimpleRNN Softmax UpSampling2D ZeroPadding2D"
    ).split(),
    "keras.models": "Model Sequential load_model clone_model".split(),
    "keras": "Input Model Sequential".split(),
}


def from_star(name: str, modules: list[str]) -> str | None:
    """What a name is that nothing binds but `from keras.layers import *`; `None` where that is not sure."""
    for module in map(canonical, modules):
        if name in _STARS.get(module, ()):
            return canonical(f"{module}.{name}")
    return None
