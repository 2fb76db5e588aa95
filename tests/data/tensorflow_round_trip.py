"""What TensorFlow writes, Lockstep reads; what Lockstep writes, TensorFlow reads.

Usage: tensorflow_round_trip.py RECORD_LISTS LOCKSTEP. Exits with 77 where no Python has TensorFlow.
"""

import gzip
import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHONS = [os.environ.get("LOCKSTEP_TENSORFLOW_PYTHON"), str(ROOT / "build" / "tensorflow-venv" / "bin" / "python")]
HAS_TENSORFLOW = "import importlib.util, sys; sys.exit(importlib.util.find_spec('tensorflow') is None)"


def go_on_with_tensorflow():
    """Continues in the first Python that has it; installs nothing."""
    for python in PYTHONS:
        if python and os.path.exists(python) and subprocess.run([python, "-c", HAS_TENSORFLOW]).returncode == 0:
            os.execv(python, [python, *sys.argv])
    print("skipped: no Python here has TensorFlow. scripts/bench --only records makes build/tensorflow-venv, in which "
          "this test runs; LOCKSTEP_TENSORFLOW_PYTHON names another")
    sys.exit(SKIPPED)


if importlib.util.find_spec("tensorflow") is None:
    go_on_with_tensorflow()

import tensorflow as tf

PACKINGS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}
BIG = 2**63 - 1


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def floats_of(values):
    return [struct.unpack("<f", struct.pack("<I", value))[0] for value in values]


def feature(kind, *values):
    return {"kind": kind, "values": list(values)}


def records():
    """Every kind, with no, one and several values; names and values that need care."""
    text = "\u00e4\u20ac\U0001f600".encode()
    yield {"image": feature("bytes", bytes(range(256)).hex()), "label": feature("int64", 7)}
    yield {"bytes": feature("bytes", "", b"\0\xff".hex(), text.hex()), "empty bytes": feature("bytes"),
           "floats": feature("float", bits(0.0), bits(-0.0), bits(1.5), bits(float("inf")), bits(1e-45)),
           "empty floats": feature("float"), "integers": feature("int64", 0, 1, -1, BIG, -BIG - 1),
           "empty integers": feature("int64"), text.decode(): feature("int64", 3), "": feature("float", bits(2.0))}
    yield {}
    yield {"no kind": feature("missing"), "long": feature("bytes", "ab" * 100_000)}
    for i in range(300):
        yield {"many": feature("int64", *range(-i, i)), "values": feature("float", *(bits(j / 3) for j in range(i))),
               "texts": feature("bytes", *(f"{j}".encode().hex() for j in range(i % 7)))}


def to_example(record):
    example = tf.train.Example()
    example.features.SetInParent()
    for name, value in record.items():
        made, kind, values = example.features.feature[name], value["kind"], value["values"]
        if kind == "bytes":
            made.bytes_list.SetInParent()
            made.bytes_list.value.extend(bytes.fromhex(each) for each in values)
        elif kind == "float":
            made.float_list.SetInParent()
            made.float_list.value.extend(floats_of(values))
        elif kind == "int64":
            made.int64_list.SetInParent()
            made.int64_list.value.extend(values)
    return example


def from_example(serialized):
    record = {}
    for name, made in tf.train.Example.FromString(serialized).features.feature.items():
        kind = made.WhichOneof("kind")
        if kind == "bytes_list":
            record[name] = feature("bytes", *(each.hex() for each in made.bytes_list.value))
        elif kind == "float_list":
            record[name] = feature("float", *(bits(each) for each in made.float_list.value))
        elif kind == "int64_list":
            record[name] = feature("int64", *made.int64_list.value)
        else:
            record[name] = feature("missing")
    return record


def varint(value):
    """As protobuf writes it."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes(digits) + bytes([value])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def unpacked_example():
    """The integers 1, -2 and the floats 0.5, 2, each by itself, as other writers may leave them; and one name twice."""
    integers = field(3, b"\x08\x01\x08" + varint(2**64 - 2))
    floats = field(2, b"\x0d" + struct.pack("<f", 0.5) + b"\x0d" + struct.pack("<f", 2))
    replaced = field(1, field(1, b"gone"))
    return field(1, b"".join(field(1, field(1, name) + field(2, value))
                             for name, value in ((b"n", replaced), (b"x", floats), (b"n", integers))))


def differ(found, expected, what):
    found, expected = list(found), list(expected)
    if len(found) != len(expected):
        sys.exit(f"{what}: expected {len(expected)} records; there are {len(found)}")
    for number, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            sys.exit(f"{what}: record {number}: expected {str(other)[:500]}; it is {str(one)[:500]}")
    print(f"{what}: {len(found)} records are the same")


def tensorflow_writes(directory, record_lists):
    expected = list(records()) + [from_example(unpacked_example())]
    for name, packing in PACKINGS.items():
        path = str(directory / f"theirs-{name}.tfrecord")
        with tf.io.TFRecordWriter(path, options=tf.io.TFRecordOptions(compression_type=packing)) as writer:
            for record in records():
                writer.write(to_example(record).SerializeToString())
            writer.write(unpacked_example())
        lines = subprocess.run([record_lists, "print", path], check=True, stdout=subprocess.PIPE, text=True).stdout
        differ(map(json.loads, lines.splitlines()), expected, f"written by TensorFlow, {name}")


def lockstep_writes(directory, record_lists):
    lines = "".join(json.dumps(record) + "\n" for record in records())
    for name, packing in PACKINGS.items():
        path = str(directory / f"ours-{name}.tfrecord")
        subprocess.run([record_lists, "write", path, name], check=True, input=lines, text=True)
        theirs = tf.data.TFRecordDataset(path, compression_type=packing)
        differ((from_example(each) for each in theirs.as_numpy_iterator()), records(), f"written by Lockstep, {name}")


def write_idx(path, extents, content):
    head = struct.pack(f">HBB{len(extents)}I", 0, 8, len(extents), *extents)
    with gzip.open(path, "wb") as file:
        file.write(head + content)


def lockstep_converts(directory, lockstep):
    """The shards of `lockstep data convert`, by tf.io.parse_example."""
    images = [bytes((i * 31 + j) % 256 for j in range(6 * 5)) for i in range(100)]
    write_idx(directory / "train-images-idx3-ubyte.gz", (100, 6, 5), b"".join(images))
    write_idx(directory / "train-labels-idx1-ubyte.gz", (100,), bytes(i % 10 for i in range(100)))
    wanted = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    for name, packing in PACKINGS.items():
        output = directory / f"converted-{name}"
        subprocess.run([lockstep, "data", "convert", "idx", "--input", directory, "--output", output, "--shards", "3",
                        "--compression", name], check=True, stdout=subprocess.DEVNULL)
        shards = sorted(str(path) for path in output.glob("*.tfrecord"))
        parsed = tf.data.TFRecordDataset(shards, compression_type=packing).batch(32).map(
            lambda serialized: tf.io.parse_example(serialized, wanted)).unbatch()
        found = [(each["image"], int(each["label"])) for each in parsed.as_numpy_iterator()]
        differ(found, [(image, i % 10) for i, image in enumerate(images)], f"converted by Lockstep, {name}")


def main():
    record_lists, lockstep = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        tensorflow_writes(directory, record_lists)
        lockstep_writes(directory, record_lists)
        lockstep_converts(directory, lockstep)
    print(f"TensorFlow {tf.__version__} and Lockstep read each other's records")


if __name__ == "__main__":
    main()
