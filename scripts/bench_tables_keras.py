"""TensorFlow's side of scripts/bench --only tables, on one core.

Usage: bench_tables_keras.py TABLE BATCH read|fit. read: from the file to the batches of one epoch,
with pandas and tf.data; fit: the network wide_deep by Keras, the table in memory. Prints one JSON
object: the samples per second of the fastest setting.
"""

import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy
import pandas
import tensorflow as tf

STEPS = 300


def load(path):
    """Standardized numbers [rows, N], numbers of words by column, labels."""
    table = pandas.read_csv(path)
    numbers = table[[name for name in table.columns if name.startswith("n")]].to_numpy("float32")
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    words = {
        name: table[name].astype("category").cat.codes.to_numpy("int32")
        for name in table.columns
        if name.startswith("c")
    }
    return numbers, words, table["label"].to_numpy("int32")


def batches(data, batch, shuffled_by):
    """Batches in a random order: by tf.data's buffer, or by an index of numpy."""
    numbers, words, labels = data
    if shuffled_by == "numpy":
        order = numpy.random.default_rng(1).permutation(len(labels))
        numbers, words, labels = numbers[order], {
            name: column[order]
            for name, column in words.items()
        }, labels[order]
    dataset = tf.data.Dataset.from_tensor_slices(({"numbers": numbers} | words, labels))
    if shuffled_by == "tf.data":
        dataset = dataset.shuffle(10_000)
    return dataset.batch(batch).prefetch(tf.data.AUTOTUNE)


@tf.function
def consume(dataset):
    return dataset.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)


def read(path, batch):
    rates = {}
    for shuffled_by in ("numpy", "tf.data"):
        start = time.perf_counter()
        data = load(path)
        consume(batches(data, batch, shuffled_by))
        rates[f"shuffled by {shuffled_by}"] = len(data[2]) / (time.perf_counter() - start)
    return rates


def wide_deep(numbers, vocabularies, classes):
    inputs = {"numbers": keras.Input((numbers,), name="numbers")}
    logits, deep = [keras.layers.Dense(classes,
                                       use_bias=False)(inputs["numbers"])], [inputs["numbers"]]
    for name, size in vocabularies.items():
        inputs[name] = keras.Input((), dtype="int32", name=name)
        logits.append(keras.layers.Embedding(size, classes)(inputs[name]))
        deep.append(keras.layers.Embedding(size, 8)(inputs[name]))
    hidden = keras.layers.Concatenate()(deep)
    for _ in range(2):
        hidden = keras.layers.Dense(128, activation="relu")(hidden)
    return keras.Model(inputs, keras.layers.Add()(logits + [keras.layers.Dense(classes)(hidden)]))


class Clock(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self.start


def fit(path, batch):
    data = load(path)
    numbers, words, _ = data
    rates = {}
    for jit in (False, True):
        for per_execution in (1, 50):
            keras.utils.set_random_seed(1)
            model = wide_deep(numbers.shape[1], {
                name: int(column.max()) + 1
                for name, column in words.items()
            }, 2)
            model.compile(keras.optimizers.Adam(1e-3),
                          keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                          jit_compile=jit, steps_per_execution=per_execution)
            clock = Clock()
            model.fit(
                batches(data, batch, "numpy").repeat(), epochs=2, steps_per_epoch=STEPS, verbose=0,
                callbacks=[clock])
            name = f"jit_compile={jit}, steps_per_execution={per_execution}"
            rates[name] = STEPS * batch / clock.seconds
    return rates


def main():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    path, batch, work = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    rates = read(path, batch) if work == "read" else fit(path, batch)
    best = max(rates, key=rates.get)
    print(
        json.dumps({
            "version": tf.__version__,
            "setting": best,
            "samples_per_second": rates[best],
            "tried": rates
        }))


if __name__ == "__main__":
    main()
