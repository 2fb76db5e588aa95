"""tf.data on TFRecord files of JPEG images: the other side of scripts/bench --only images.

Usage: bench_tensorflow_images.py WORK DIRECTORY SECONDS [SETTING...], WORK cifar10 or imagenet.
Prints one object: for each setting the images a second of the process's own time, all threads
included. With SETTINGs, those alone.
"""

import glob
import itertools
import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import tensorflow as tf

BATCH = 128
FEATURES = {"image/encoded": tf.io.FixedLenFeature([], tf.string),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64)}
STATISTICS = {"cifar10": ([0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
              "imagenet": ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])}


def options():
    chosen = tf.data.Options()
    chosen.threading.private_threadpool_size = 1
    chosen.threading.max_intra_op_parallelism = 1
    chosen.autotune.enabled = True
    chosen.deterministic = True
    chosen.experimental_optimization.map_and_batch_fusion = True
    return chosen


def normalizer(work):
    mean, deviation = (tf.constant(each) * 255 for each in STATISTICS[work])
    scale, offset = 1 / deviation, mean / deviation
    return lambda pixels: tf.cast(pixels, tf.float32) * scale - offset


def cifar10_crop(image):
    padded = tf.pad(image, [[4, 4], [4, 4], [0, 0]])
    return tf.image.random_flip_left_right(tf.image.random_crop(padded, [32, 32, 3]))


def cifar10_crops(images):
    """Crop and flip of a batch in one kernel: boxes on whole pixels, mirrored ones from right to
    left."""
    count = tf.shape(images)[0]
    padded = tf.pad(images, [[0, 0], [4, 4], [4, 4], [0, 0]])
    corner = tf.cast(tf.random.uniform([count, 2], 0, 9, tf.int32), tf.float32)
    top, left, mirrored = corner[:, 0], corner[:, 1], tf.random.uniform([count]) < 0.5
    right = left + 31
    boxes = tf.stack(
        [top, tf.where(mirrored, right, left), top + 31,
         tf.where(mirrored, left, right)], axis=1) / 39
    return tf.image.crop_and_resize(padded, boxes, tf.range(count), [32, 32])


def imagenet_crop(encoded):
    begin, size, _ = tf.image.sample_distorted_bounding_box(tf.image.extract_jpeg_shape(encoded),
                                                            bounding_boxes=tf.zeros([1, 0, 4]),
                                                            area_range=(0.08, 1.0),
                                                            aspect_ratio_range=(3 / 4, 4 / 3),
                                                            max_attempts=10,
                                                            use_image_if_no_bounding_boxes=True)
    window = tf.stack([begin[0], begin[1], size[0], size[1]])
    image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
    return tf.image.resize(image, [224, 224], method="bilinear")


def encoded_records(paths, buffer, parse, parallel):
    records = tf.data.TFRecordDataset(paths, buffer_size=buffer)
    if parse == "single":
        return records, lambda serialized: tuple(
            tf.io.parse_single_example(serialized, FEATURES).values())
    batches = records.batch(1024).map(
        lambda serialized: tuple(tf.io.parse_example(serialized, FEATURES).values()),
        num_parallel_calls=parallel)
    return batches.unbatch(), None


def pipeline(work, paths, buffer, parse, late, parallel):
    """`late`: do everything that is possible on a whole batch at once."""
    records, parse_one = encoded_records(paths, buffer, parse, parallel)
    normalize = normalizer(work)

    def one(*record):
        label, encoded = by_kind(parse_one(*record) if parse_one else record)
        if work == "imagenet":
            image = imagenet_crop(encoded)
            image = image if late else normalize(tf.image.random_flip_left_right(image))
        else:
            image = tf.ensure_shape(tf.io.decode_jpeg(encoded, channels=3), [32, 32, 3])
            image = {
                "no": lambda: normalize(cifar10_crop(image)),
                "norm": lambda: cifar10_crop(image),
                "all": lambda: image
            }[late or "no"]()
        return image, label

    def whole(images, labels):
        if work == "imagenet":
            return normalize(tf.image.random_flip_left_right(images)), labels
        return normalize(cifar10_crops(images) if late == "all" else images), labels

    batches = records.map(one, num_parallel_calls=parallel).batch(BATCH)
    if late:
        batches = batches.map(whole, num_parallel_calls=parallel)
    return batches.prefetch(tf.data.AUTOTUNE if parallel else 0).repeat().with_options(options())


def by_kind(record):
    """(label, encoded image) in this order."""
    first, second = record
    return (first, second) if first.dtype == tf.int64 else (second, first)


def settings(work, directory):
    paths = sorted(glob.glob(f"{directory}/train-*.tfrecord"))
    lates = (None, "norm", "all") if work == "cifar10" else (None, "all")
    return {
        f"parse={parse} late={late or 'no'} map={'auto' if parallel else 'serial'}": pipeline(
            work, paths, 1 << 20, parse, late, parallel)
        for parse, late, parallel in itertools.product(("single",
                                                        "batch"), lates, (None, tf.data.AUTOTUNE))
    }


@tf.function
def consume(iterator, batches):
    """Runs batches within the graph, so that no Python runs between them."""
    count = tf.constant(0, tf.int64)
    for _ in tf.range(batches):
        images, _ = next(iterator)
        count += tf.shape(images, out_type=tf.int64)[0]
    return count


def rate(dataset, batches, seconds):
    iterator = iter(dataset)
    steps = tf.constant(batches)
    consume(iterator, steps)
    images, start = 0, time.process_time()
    while time.process_time() - start < seconds:
        images += int(consume(iterator, steps))
    return images / (time.process_time() - start)


def main():
    work, directory, seconds, chosen = sys.argv[1], sys.argv[2], float(sys.argv[3]), set(
        sys.argv[4:])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    batches = 64 if work == "cifar10" else 1
    rates = {
        name: rate(dataset, batches, seconds)
        for name, dataset in settings(work, directory).items()
        if not chosen or name in chosen
    }
    print(json.dumps({"version": tf.__version__, "rates": rates}))


if __name__ == "__main__":
    main()
