"""Writes the networks of Keras for scripts/networks: networks_keras.py NAME FILE, or without
arguments their names."""

import sys

import keras
import tensorflow
import tf2onnx
from keras import layers


def net(shape, *rest):
    inputs = keras.Input(shape)
    outputs = inputs
    for layer in rest:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def attention(inputs):
    return layers.MultiHeadAttention(4, 4)(inputs, inputs)


IMAGE, SEQUENCE, ROW = (32, 32, 3), (9, 16), (12, )
NETWORKS = {
    "avgsame": lambda: net(IMAGE, layers.Conv2D(6, 3), layers.AveragePooling2D(3, 2, "same"),
                           layers.Flatten(), layers.Dense(4)),
    "bilstm": lambda: net(SEQUENCE, layers.Bidirectional(layers.LSTM(8)), layers.Dense(4)),
    "cnn": lambda: net(IMAGE, layers.Conv2D(8, 3, activation="relu"), layers.MaxPooling2D(),
                       layers.BatchNormalization(), layers.Flatten(), layers.Dense(4)),
    "conv1d": lambda: net(SEQUENCE, layers.Conv1D(8, 3, padding="causal", dilation_rate=2),
                          layers.MaxPooling1D(), layers.Flatten(), layers.Dense(4)),
    "densenet121": lambda: keras.applications.DenseNet121(
        weights=None, input_shape=IMAGE, classes=10, classifier_activation=None),
    "efficientnetb0": lambda: keras.applications.EfficientNetB0(
        weights=None, input_shape=IMAGE, classes=10, classifier_activation=None),
    "gru": lambda: net(SEQUENCE, layers.GRU(8), layers.Dense(4)),
    "lstm": lambda: net(SEQUENCE, layers.LSTM(8), layers.Dense(4)),
    "mha": lambda: net(SEQUENCE, attention, layers.Flatten(), layers.Dense(4)),
    "mlp": lambda: net(ROW, layers.Dense(16, activation="elu"), layers.Dense(4)),
    "mlp_relu": lambda: net(ROW, layers.Dense(16, activation="relu"), layers.BatchNormalization(),
                            layers.Dense(4)),
    "mobilenetv2": lambda: keras.applications.MobileNetV2(
        weights=None, input_shape=(96, 96, 3), alpha=0.35, classes=10, classifier_activation=None),
    "simplernn": lambda: net(SEQUENCE, layers.SimpleRNN(8), layers.Dense(4)),
    "transpose": lambda: net(IMAGE, layers.Conv2D(6, 3, 2, "same"),
                             layers.Conv2DTranspose(4, 3, 2, "same"), layers.Flatten(),
                             layers.Dense(4)),
    "upsample": lambda: net(IMAGE, layers.Conv2D(6, 3, 2, "same"), layers.UpSampling2D(),
                            layers.Flatten(), layers.Dense(4)),
    "vgg16": lambda: keras.applications.VGG16(weights=None, input_shape=IMAGE, classes=10,
                                              classifier_activation=None),
    "separable": lambda: net(IMAGE, layers.SeparableConv2D(8, 3, activation="silu"),
                             layers.GlobalAveragePooling2D(), layers.Dense(4)),
}


def main():
    if len(sys.argv) == 1:
        print("\n".join(NETWORKS))
        return
    name, path = sys.argv[1:]
    keras.utils.set_random_seed(len(name))
    model = NETWORKS[name]()
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.moving_mean.assign(keras.random.normal(layer.moving_mean.shape, 0, 0.1))
            layer.moving_variance.assign(keras.random.uniform(layer.moving_mean.shape, 0.5, 1.5))
    signature = [tensorflow.TensorSpec((None, *model.input_shape[1:]), tensorflow.float32, "x")]
    call = tensorflow.function(lambda x: model(x, training=False), input_signature=signature)
    tf2onnx.convert.from_function(call, input_signature=signature, opset=17, output_path=path)


main()
