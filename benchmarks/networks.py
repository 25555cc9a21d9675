"""Networks people would recognise, written as published code writes them: what predictions are tried on.

Each function takes the size (of a picture's side, or a sequence's length) and returns a model that is not compiled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from memfit.framework import keras, tensorflow

Target = Literal["classes", "values", "none"]


@dataclass(frozen=True)
class Network:
    """A network, and what it is trained on."""

    build: Callable[[int], Any]
    target: Target = "classes"
    """`classes`: integer labels for logits. `values`: the outputs themselves, squared error. `none`: its own step."""
    inputs: Callable[[int], tuple[tuple[int, ...], str]] | None = None
    """Shape and dtype of a sample, for models that have no `Input`."""
    compiled_by_xla: bool = True
    """Whether Keras compiles it with `jit_compile="auto"`."""


VOCABULARY = 16384


def _vit(size: int, *, patch: int = 16, width: int = 384, heads: int = 6, blocks: int = 12) -> Any:
    layers = keras().layers
    inputs = keras().Input((size, size, 3))
    x = layers.Conv2D(width, patch, strides=patch)(inputs)
    count = (size // patch) ** 2
    x = layers.Reshape((count, width))(x)
    x = x + layers.Embedding(count, width)(keras().ops.arange(count))
    for _ in range(blocks):
        x = _attention_block(x, width, heads)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    return keras().Model(inputs, layers.Dense(1000, dtype="float32")(x))


def _attention_block(x: Any, width: int, heads: int, *, causal: bool = False, memory: Any = None) -> Any:
    layers = keras().layers
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    x = x + layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=causal)
    if memory is not None:
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        x = x + layers.MultiHeadAttention(heads, width // heads)(y, memory)
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dense(4 * width, activation="gelu")(y)
    return x + layers.Dense(width)(layers.Dropout(0.1)(y))


@cache
def _window_attention() -> type:
    """The layer of Swin transformers: attention inside windows, which every second block shifts."""
    ops = keras().ops

    class WindowAttention(keras().layers.Layer):
        def __init__(self, heads: int, window: int, shift: int) -> None:
            super().__init__()
            self.heads, self.window, self.shift = heads, window, shift

        def build(self, shape: Any) -> None:
            width = shape[-1]
            self.mix = keras().layers.Dense(3 * width, dtype=self.dtype_policy)
            self.out = keras().layers.Dense(width, dtype=self.dtype_policy)
            self.mix.build(shape)
            self.out.build(shape)
            self.bias = self.add_weight(shape=(self.heads, self.window**2, self.window**2), name="bias")

        def call(self, x: Any) -> Any:
            _, height, width, channels = x.shape
            window, heads = self.window, self.heads
            x = ops.roll(x, (-self.shift, -self.shift), axis=(1, 2))
            x = ops.reshape(x, (-1, height // window, window, width // window, window, channels))
            x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, window**2, channels))
            mixed = ops.reshape(self.mix(x), (-1, window**2, 3, heads, channels // heads))
            query, key, value = ops.unstack(ops.transpose(mixed, (2, 0, 3, 1, 4)), 3)
            scores = query @ ops.transpose(key, (0, 1, 3, 2)) * (channels // heads) ** -0.5 + self.bias
            x = ops.transpose(ops.softmax(scores) @ value, (0, 2, 1, 3))
            x = self.out(ops.reshape(x, (-1, window**2, channels)))
            x = ops.reshape(x, (-1, height // window, width // window, window, window, channels))
            x = ops.reshape(ops.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, height, width, channels))
            return ops.roll(x, (self.shift, self.shift), axis=(1, 2))

    return WindowAttention


def _swin(size: int, *, width: int = 96, depths: tuple[int, ...] = (2, 2, 6, 2), window: int = 7) -> Any:
    layers, attention = keras().layers, _window_attention()
    inputs = keras().Input((size, size, 3))
    x = layers.LayerNormalization()(layers.Conv2D(width, 4, strides=4)(inputs))
    for stage, depth in enumerate(depths):
        channels = width * 2**stage
        if stage:
            x = layers.Conv2D(channels, 2, strides=2, use_bias=False)(layers.LayerNormalization()(x))
        for block in range(depth):
            shift = window // 2 if block % 2 and x.shape[1] > window else 0
            x = x + attention(channels // 32, window, shift)(layers.LayerNormalization()(x))
            y = layers.Dense(4 * channels, activation="gelu")(layers.LayerNormalization()(x))
            x = x + layers.Dense(channels)(y)
    x = layers.GlobalAveragePooling2D()(layers.LayerNormalization()(x))
    return keras().Model(inputs, layers.Dense(1000, dtype="float32")(x))


def _convmixer(size: int, *, width: int = 256, blocks: int = 8, patch: int = 2) -> Any:
    layers = keras().layers
    inputs = keras().Input((size, size, 3))
    x = layers.BatchNormalization()(layers.Activation("gelu")(layers.Conv2D(width, patch, strides=patch)(inputs)))
    for _ in range(blocks):
        y = layers.DepthwiseConv2D(5, padding="same")(x)
        x = layers.BatchNormalization()(layers.Activation("gelu")(y)) + x
        x = layers.BatchNormalization()(layers.Activation("gelu")(layers.Conv2D(width, 1)(x)))
    return keras().Model(inputs, layers.Dense(10, dtype="float32")(layers.GlobalAveragePooling2D()(x)))


def _convolution(x: Any, filters: int, kernel: int = 3, *, dilation: int = 1) -> Any:
    layers = keras().layers
    x = layers.Conv2D(filters, kernel, padding="same", dilation_rate=dilation, use_bias=False)(x)
    return layers.ReLU()(layers.BatchNormalization()(x))


def _deeplab(size: int) -> Any:
    layers = keras().layers
    backbone = keras().applications.ResNet50(weights=None, include_top=False, input_shape=(size, size, 3))
    x = backbone.get_layer("conv4_block6_2_relu").output
    low = backbone.get_layer("conv2_block3_2_relu").output
    pooled = layers.AveragePooling2D(x.shape[1:3])(x)
    pooled = layers.UpSampling2D(x.shape[1:3], interpolation="bilinear")(_convolution(pooled, 256, 1))
    branches = [_convolution(x, 256, 1), *(_convolution(x, 256, dilation=rate) for rate in (6, 12, 18))]
    x = _convolution(layers.Concatenate()([pooled, *branches]), 256, 1)
    x = layers.UpSampling2D(4, interpolation="bilinear")(x)
    x = layers.Concatenate()([x, _convolution(low, 48, 1)])
    x = _convolution(_convolution(x, 256), 256)
    x = layers.UpSampling2D(4, interpolation="bilinear")(x)
    return keras().Model(backbone.input, layers.Conv2D(20, 1, dtype="float32")(x))


def _retinanet(size: int, *, classes: int = 80, anchors: int = 9) -> Any:
    layers = keras().layers
    backbone = keras().applications.ResNet50(weights=None, include_top=False, input_shape=(size, size, 3))
    names = ("conv3_block4_out", "conv4_block6_out", "conv5_block3_out")
    third, fourth, fifth = (layers.Conv2D(256, 1)(backbone.get_layer(name).output) for name in names)
    fourth = fourth + layers.UpSampling2D(2)(fifth)
    third = third + layers.UpSampling2D(2)(fourth)
    levels = [layers.Conv2D(256, 3, padding="same")(level) for level in (third, fourth, fifth)]
    levels.append(layers.Conv2D(256, 3, strides=2, padding="same")(levels[-1]))
    levels.append(layers.Conv2D(256, 3, strides=2, padding="same")(layers.ReLU()(levels[-1])))
    outputs = []
    for values in (4, classes):
        head = [layers.Conv2D(256, 3, padding="same", activation="relu") for _ in range(4)]
        head.append(layers.Conv2D(anchors * values, 3, padding="same", dtype="float32"))
        found = []
        for level in levels:
            for layer in head:
                level = layer(level)
            found.append(layers.Reshape((-1, values))(level))
        outputs.append(layers.Concatenate(axis=1, dtype="float32")(found))
    return keras().Model(backbone.input, layers.Concatenate(dtype="float32")(outputs))


def _unet_plus_plus(size: int, *, widths: tuple[int, ...] = (32, 64, 128, 256, 512)) -> Any:
    layers = keras().layers

    def block(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.Activation("swish")(layers.GroupNormalization(8)(x))
        return x

    inputs = keras().Input((size, size, 3))
    grid: dict[tuple[int, int], Any] = {}
    for row, filters in enumerate(widths):
        grid[row, 0] = block(layers.MaxPooling2D()(grid[row - 1, 0]) if row else inputs, filters)
    for column in range(1, len(widths)):
        for row in range(len(widths) - column):
            up = layers.Conv2DTranspose(widths[row], 2, strides=2)(grid[row + 1, column - 1])
            before = [grid[row, each] for each in range(column)]
            grid[row, column] = block(layers.Concatenate()([*before, up]), widths[row])
    return keras().Model(inputs, layers.Conv2D(3, 1, dtype="float32")(grid[0, len(widths) - 1]))


def _tokens(inputs: Any, length: int, width: int) -> Any:
    layers = keras().layers
    return layers.Embedding(VOCABULARY, width)(inputs) + layers.Embedding(length, width)(keras().ops.arange(length))


def _gpt(length: int, *, width: int = 512, heads: int = 8, blocks: int = 8) -> Any:
    layers = keras().layers
    inputs = keras().Input((length,), dtype="int32")
    x = _tokens(inputs, length, width)
    for _ in range(blocks):
        x = _attention_block(x, width, heads, causal=True)
    return keras().Model(inputs, layers.Dense(VOCABULARY, dtype="float32")(layers.LayerNormalization()(x)))


def _translation(length: int, *, width: int = 256, heads: int = 8, blocks: int = 4) -> Any:
    """An encoder and a decoder, as in machine translation."""
    layers = keras().layers
    source, target = (keras().Input((length,), dtype="int32", name=name) for name in ("source", "target"))
    memory = _tokens(source, length, width)
    for _ in range(blocks):
        memory = _attention_block(memory, width, heads)
    x = _tokens(target, length, width)
    for _ in range(blocks):
        x = _attention_block(x, width, heads, causal=True, memory=memory)
    return keras().Model([source, target], layers.Dense(VOCABULARY, dtype="float32")(x))


def _bidirectional(cell: str) -> Callable[[int], Any]:
    def build(length: int) -> Any:
        layers = keras().layers
        recurrent = getattr(layers, cell)
        inputs = keras().Input((length,), dtype="int32")
        x = layers.Embedding(VOCABULARY, 128)(inputs)
        x = layers.Bidirectional(recurrent(128, return_sequences=True))(x)
        x = layers.Bidirectional(recurrent(128))(x)
        return keras().Model(inputs, layers.Dense(2, dtype="float32")(layers.Dropout(0.5)(x)))

    return build


def _video(size: int) -> Any:
    """A 3-D convolutional network, as for CT scans and short clips."""
    layers = keras().layers
    x = inputs = keras().Input((size, size, size // 2, 1))
    for filters in (64, 64, 128, 256):
        x = layers.Conv3D(filters, 3, padding="same", activation="relu")(x)
        x = layers.BatchNormalization()(layers.MaxPooling3D(2)(x))
    x = layers.Dropout(0.3)(layers.Dense(512, activation="relu")(layers.GlobalAveragePooling3D()(x)))
    return keras().Model(inputs, layers.Dense(2, dtype="float32")(x))


def _super_resolution(size: int, *, width: int = 64, blocks: int = 16) -> Any:
    """EDSR: residual blocks without normalization, and a pixel shuffle."""
    layers, tf = keras().layers, tensorflow()
    inputs = keras().Input((size, size, 3))
    x = first = layers.Conv2D(width, 3, padding="same")(inputs)
    for _ in range(blocks):
        y = layers.Conv2D(width, 3, padding="same", activation="relu")(x)
        x = x + layers.Conv2D(width, 3, padding="same")(y)
    x = first + layers.Conv2D(width, 3, padding="same")(x)
    for _ in range(2):
        x = layers.Conv2D(4 * width, 3, padding="same")(x)
        x = layers.Lambda(lambda each: tf.nn.depth_to_space(each, 2))(x)
    return keras().Model(inputs, layers.Conv2D(3, 3, padding="same", dtype="float32")(x))


def _transfer(size: int) -> Any:
    """A frozen backbone under a new head."""
    layers = keras().layers
    backbone = keras().applications.EfficientNetB0(weights=None, include_top=False, input_shape=(size, size, 3))
    backbone.trainable = False
    inputs = keras().Input((size, size, 3))
    x = layers.RandomFlip("horizontal")(inputs)
    x = layers.GlobalAveragePooling2D()(backbone(x, training=False))
    x = layers.Dense(256, activation="relu")(layers.Dropout(0.2)(x))
    return keras().Model(inputs, layers.Dense(10, dtype="float32")(x))


def _vgg_half(size: int) -> Any:
    layers = keras().layers
    body: list[Any] = []
    for filters, count in ((32, 2), (64, 2), (128, 3), (256, 3), (256, 3)):
        body += [layers.Conv2D(filters, 3, padding="same", activation="relu") for _ in range(count)]
        body.append(layers.MaxPooling2D())
    body += [layers.Flatten(), layers.Dense(2048, activation="relu"), layers.Dense(2048, activation="relu")]
    return keras().Sequential([keras().Input((size, size, 3)), *body, layers.Dense(1000, dtype="float32")])


def _wavenet(length: int) -> Any:
    layers = keras().layers
    x = inputs = keras().Input((length, 1))
    x = layers.Conv1D(64, 2, padding="causal")(x)
    skips = []
    for dilation in (1, 2, 4, 8, 16, 32, 64, 128) * 2:
        y = layers.Conv1D(64, 2, padding="causal", dilation_rate=dilation, activation="tanh")(x)
        gate = layers.Conv1D(64, 2, padding="causal", dilation_rate=dilation, activation="sigmoid")(x)
        y = layers.Conv1D(64, 1)(y * gate)
        skips.append(y)
        x = x + y
    x = layers.Conv1D(128, 1, activation="relu")(layers.ReLU()(layers.Add()(skips)))
    return keras().Model(inputs, layers.Conv1D(256, 1, dtype="float32")(x))


@cache
def _gan_class() -> type:
    ops = keras().ops

    class GAN(keras().Model):
        """A discriminator and a generator, each with an optimizer of its own."""

        def __init__(self, discriminator: Any, generator: Any, latent: int) -> None:
            super().__init__()
            self.discriminator, self.generator, self.latent = discriminator, generator, latent
            self.seeds = keras().random.SeedGenerator(1)
            self.loss_tracker = keras().metrics.Mean(name="loss")

        def compile(self, optimizer: Any, *_: Any, **settings: Any) -> None:
            super().compile(**{key: value for key, value in settings.items() if key == "jit_compile"})
            self.first = optimizer
            self.second = type(optimizer).from_config(optimizer.get_config())
            self.loss_function = keras().losses.BinaryCrossentropy(from_logits=True)

        def train_step(self, images: Any) -> Any:
            tf = tensorflow()
            images = images[0] if isinstance(images, tuple) else images
            count = ops.shape(images)[0]
            noise = keras().random.normal((count, self.latent), seed=self.seeds)
            made = ops.cast(self.generator(noise), images.dtype)
            labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
            with tf.GradientTape() as tape:
                loss = self.loss_function(labels, self.discriminator(ops.concatenate([made, images], axis=0)))
            weights = self.discriminator.trainable_weights
            self.first.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            with tf.GradientTape() as tape:
                judged = self.discriminator(self.generator(noise))
                loss = self.loss_function(ops.zeros((count, 1)), judged)
            weights = self.generator.trainable_weights
            self.second.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}

    return GAN


def _gan(size: int) -> Any:
    layers = keras().layers
    body: list[Any] = []
    for filters in (64, 128, 256):
        body += [layers.Conv2D(filters, 4, strides=2, padding="same"), layers.LeakyReLU(0.2)]
    body += [layers.Flatten(), layers.Dropout(0.2), layers.Dense(1, dtype="float32")]
    discriminator = keras().Sequential([keras().Input((size, size, 3)), *body])
    body = [layers.Dense((size // 8) ** 2 * 128), layers.Reshape((size // 8, size // 8, 128))]
    for filters in (128, 256, 512):
        body += [layers.Conv2DTranspose(filters, 4, strides=2, padding="same"), layers.LeakyReLU(0.2)]
    body.append(layers.Conv2D(3, 5, padding="same", activation="sigmoid"))
    generator = keras().Sequential([keras().Input((128,)), *body])
    return _gan_class()(discriminator, generator, 128)


@cache
def _vae_class() -> type:
    ops = keras().ops

    class VAE(keras().Model):
        """An encoder and a decoder with a sampled code between them."""

        def __init__(self, encoder: Any, decoder: Any) -> None:
            super().__init__()
            self.encoder, self.decoder = encoder, decoder
            self.seeds = keras().random.SeedGenerator(1)
            self.loss_tracker = keras().metrics.Mean(name="loss")

        def compile(self, optimizer: Any, *_: Any, **settings: Any) -> None:
            super().compile(optimizer, jit_compile=settings.get("jit_compile", "auto"))

        def train_step(self, images: Any) -> Any:
            tf = tensorflow()
            images = images[0] if isinstance(images, tuple) else images
            with tf.GradientTape() as tape:
                mean, log_variance = (ops.cast(each, "float32") for each in self.encoder(images))
                noise = keras().random.normal(ops.shape(mean), seed=self.seeds)
                made = self.decoder(mean + ops.exp(0.5 * log_variance) * noise)
                distance = ops.mean(ops.sum(ops.square(images - made), axis=(1, 2, 3)))
                divergence = -0.5 * (1 + log_variance - ops.square(mean) - ops.exp(log_variance))
                loss = distance + ops.mean(ops.sum(divergence, axis=1))
            self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}

    return VAE


def _vae(size: int) -> Any:
    layers = keras().layers
    x = inputs = keras().Input((size, size, 3))
    for filters in (64, 128, 256):
        x = layers.BatchNormalization()(layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x))
    x = layers.Dense(256, activation="relu")(layers.Flatten()(x))
    encoder = keras().Model(inputs, [layers.Dense(64, dtype="float32")(x), layers.Dense(64, dtype="float32")(x)])
    x = code = keras().Input((64,))
    x = layers.Reshape((size // 8, size // 8, 256))(layers.Dense((size // 8) ** 2 * 256)(x))
    for filters in (256, 128, 64):
        x = layers.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(x)
        x = layers.BatchNormalization()(x)
    outputs = layers.Conv2D(3, 3, padding="same", activation="sigmoid", dtype="float32")(x)
    return _vae_class()(encoder, keras().Model(code, outputs))


@cache
def _text_transformer_layers() -> tuple[type, type]:
    """The two layers of keras.io's text_classification_with_transformer."""
    layers, ops = keras().layers, keras().ops

    class TransformerBlock(layers.Layer):
        def __init__(self, width: int, heads: int, inner: int, rate: float = 0.1) -> None:
            super().__init__()
            self.attention = layers.MultiHeadAttention(heads, width)
            self.inner = keras().Sequential([layers.Dense(inner, activation="relu"), layers.Dense(width)])
            self.first_norm = layers.LayerNormalization(epsilon=1e-6)
            self.second_norm = layers.LayerNormalization(epsilon=1e-6)
            self.first_dropout, self.second_dropout = layers.Dropout(rate), layers.Dropout(rate)

        def call(self, inputs: Any) -> Any:
            attended = self.first_dropout(self.attention(inputs, inputs))
            x = self.first_norm(inputs + attended)
            return self.second_norm(x + self.second_dropout(self.inner(x)))

    class TokenAndPositionEmbedding(layers.Layer):
        def __init__(self, length: int, width: int) -> None:
            super().__init__()
            self.tokens = layers.Embedding(VOCABULARY, width)
            self.positions = layers.Embedding(length, width)

        def call(self, x: Any) -> Any:
            return self.tokens(x) + self.positions(ops.arange(0, ops.shape(x)[-1], 1))

    return TransformerBlock, TokenAndPositionEmbedding


def _text_transformer(length: int, *, width: int = 32, heads: int = 2) -> Any:
    layers = keras().layers
    block, embedding = _text_transformer_layers()
    inputs = keras().Input((length,), dtype="int32")
    x = block(width, heads, width)(embedding(length, width)(inputs))
    x = layers.Dropout(0.1)(layers.GlobalAveragePooling1D()(x))
    x = layers.Dropout(0.1)(layers.Dense(20, activation="relu")(x))
    return keras().Model(inputs, layers.Dense(2, dtype="float32")(x))


def _lstm_series(length: int) -> Any:
    """Two stacked LSTMs that forecast a time series of a few features."""
    layers = keras().layers
    body = [layers.LSTM(128, return_sequences=True), layers.LSTM(64), layers.Dense(32, activation="relu")]
    return keras().Sequential([keras().Input((length, 8)), *body, layers.Dense(1, dtype="float32")])


def _gru_text(length: int) -> Any:
    layers = keras().layers
    body = [layers.Embedding(VOCABULARY, 128), layers.GRU(128), layers.Dense(64, activation="relu")]
    return keras().Sequential([keras().Input((length,), dtype="int32"), *body, layers.Dense(2, dtype="float32")])


def _seq2seq(length: int, *, width: int = 256) -> Any:
    """The Keras blog's sequence-to-sequence learning, for words: an encoder whose states a decoder begins with."""
    layers = keras().layers
    source, target = (keras().Input((length,), dtype="int32", name=name) for name in ("source", "target"))
    _, *states = layers.LSTM(width, return_state=True)(layers.Embedding(VOCABULARY, width)(source))
    x = layers.Embedding(VOCABULARY, width)(target)
    x = layers.LSTM(width, return_sequences=True)(x, initial_state=states)
    return keras().Model([source, target], layers.Dense(VOCABULARY, dtype="float32")(x))


def _text_cnn(length: int) -> Any:
    """keras.io's text_classification_from_scratch."""
    layers = keras().layers
    x = inputs = keras().Input((length,), dtype="int32")
    x = layers.Dropout(0.5)(layers.Embedding(VOCABULARY, 128)(x))
    for _ in range(2):
        x = layers.Conv1D(128, 7, strides=3, activation="relu")(x)
    x = layers.Dropout(0.5)(layers.Dense(128, activation="relu")(layers.GlobalMaxPooling1D()(x)))
    return keras().Model(inputs, layers.Dense(2, dtype="float32")(x))


def _small_cnn(size: int) -> Any:
    """The image classifier of TensorFlow's first tutorials."""
    layers = keras().layers
    body: list[Any] = []
    for filters in (32, 64, 128):
        body += [layers.Conv2D(filters, 3, padding="same", activation="relu"), layers.MaxPooling2D()]
    body += [layers.Flatten(), layers.Dense(128, activation="relu"), layers.Dropout(0.5)]
    return keras().Sequential([keras().Input((size, size, 3)), *body, layers.Dense(10, dtype="float32")])


def _autoencoder(size: int) -> Any:
    """keras.io's convolutional autoencoder for denoising images."""
    layers = keras().layers
    x = inputs = keras().Input((size, size, 1))
    for filters in (32, 32):
        x = layers.Conv2D(filters, 3, activation="relu", padding="same")(x)
        x = layers.MaxPooling2D(2, padding="same")(x)
    for filters in (32, 32):
        x = layers.Conv2DTranspose(filters, 3, strides=2, activation="relu", padding="same")(x)
    return keras().Model(inputs, layers.Conv2D(1, 3, activation="sigmoid", padding="same", dtype="float32")(x))


def _siamese(size: int) -> Any:
    """keras.io's siamese_contrastive: two images through one network, and the distance of what it makes of them."""
    layers, ops = keras().layers, keras().ops
    x = inputs = keras().Input((size, size, 1))
    x = layers.BatchNormalization()(x)
    for filters in (4, 16):
        x = layers.AveragePooling2D(2)(layers.Conv2D(filters, 5, activation="tanh")(x))
    x = layers.Dense(10, activation="tanh")(layers.BatchNormalization()(layers.Flatten()(x)))
    embedding = keras().Model(inputs, x)
    first, second = keras().Input((size, size, 1)), keras().Input((size, size, 1))
    squares = ops.sum(ops.square(embedding(first) - embedding(second)), axis=1, keepdims=True)
    distance = layers.BatchNormalization()(ops.sqrt(ops.maximum(squares, 1e-7)))
    return keras().Model([first, second], layers.Dense(1, activation="sigmoid", dtype="float32")(distance))


def _picture(size: int) -> tuple[tuple[int, ...], str]:
    return (size, size, 3), "float32"


NETWORKS = {
    "autoencoder": Network(_autoencoder, "values"),
    "bigru": Network(_bidirectional("GRU"), compiled_by_xla=False),
    "bilstm": Network(_bidirectional("LSTM"), compiled_by_xla=False),
    "convmixer": Network(_convmixer),
    "deeplab": Network(_deeplab),
    "gan": Network(_gan, "none", _picture),
    "gpt": Network(_gpt),
    "gru_text": Network(_gru_text, compiled_by_xla=False),
    "lstm_series": Network(_lstm_series, "values", compiled_by_xla=False),
    "retinanet": Network(_retinanet, "values"),
    "seq2seq": Network(_seq2seq, compiled_by_xla=False),
    "siamese": Network(_siamese, "values"),
    "small_cnn": Network(_small_cnn),
    "super_resolution": Network(_super_resolution, "values"),
    "swin": Network(_swin),
    "text_cnn": Network(_text_cnn),
    "text_transformer": Network(_text_transformer),
    "transfer": Network(_transfer),
    "translation": Network(_translation),
    "unet_plus_plus": Network(_unet_plus_plus),
    "vae": Network(_vae, "none", _picture),
    "vgg_half": Network(_vgg_half),
    "video": Network(_video),
    "vit": Network(_vit),
    "wavenet": Network(_wavenet),
}
