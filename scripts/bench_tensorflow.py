"""tf.data on the files that lockstep_bench_records keeps: the other side of scripts/bench --only
records.

Usage: bench_tensorflow.py DIRECTORY SECONDS [SETTING...]. Prints one object: for each work, its
settings with the records a second of the process's own time, all threads included. With SETTINGs,
those alone.
"""

import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import tensorflow as tf

FEATURES = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64)
}


def options(threads):
    chosen = tf.data.Options()
    chosen.threading.private_threadpool_size = threads
    chosen.threading.max_intra_op_parallelism = 1
    chosen.autotune.enabled = True
    return chosen


def large(path, buffer, threads):
    return tf.data.TFRecordDataset(path, buffer_size=buffer).with_options(options(threads))


def images(path, buffer, batch, parallel, threads):
    records = tf.data.TFRecordDataset(path, buffer_size=buffer).batch(batch)
    parsed = records.map(lambda serialized: tf.io.parse_example(serialized, FEATURES),
                         num_parallel_calls=parallel)
    return parsed.prefetch(tf.data.AUTOTUNE if parallel else 0).with_options(options(threads))


def settings(directory):
    """For each work, by name: its data set and the records of an epoch."""
    works = {"large": {}, "images": {}}
    for buffer in (256 << 10, 1 << 20, 8 << 20):
        works["large"][f"large buffer={buffer >> 10}K"] = (large(f"{directory}/large.tfrecord",
                                                                 buffer, 1), 2_000)
        for batch in (128, 1024):
            for parallel in (None, tf.data.AUTOTUNE):
                kind = "auto" if parallel else "serial"
                name = f"images buffer={buffer >> 10}K batch={batch} map={kind}"
                works["images"][name] = (images(f"{directory}/images.tfrecord", buffer, batch,
                                                parallel, 1), 200_000)
    return works


@tf.function
def consume(dataset):
    """Runs the epoch within the graph, so that no Python runs between batches."""
    return dataset.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1)


def rate(dataset, records, seconds):
    consume(dataset)
    epochs, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        consume(dataset)
        epochs += 1
    return epochs * records / (time.process_time() - start)


def main():
    directory, seconds, chosen = sys.argv[1], float(sys.argv[2]), set(sys.argv[3:])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rates = {
        work: {
            name: rate(dataset, records, seconds)
            for name, (dataset, records) in each.items()
            if not chosen or name in chosen
        }
        for work, each in settings(directory).items()
    }
    print(json.dumps({"version": tf.__version__, "rates": rates}))


if __name__ == "__main__":
    main()
