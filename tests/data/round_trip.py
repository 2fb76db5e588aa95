"""Tests that Lockstep reads TFRecord files and tf.train.Examples of another implementation, and the
reverse.

Usage: round_trip.py tensorflow|tfrecord RECORD_LISTS LOCKSTEP. The second is a package of PyPI in
pure Python. Exits with 77 if no Python has the requested one.
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
import zlib

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
PEER = sys.argv[1]
PYTHONS = {
    "tensorflow": [
        os.environ.get("LOCKSTEP_TENSORFLOW_PYTHON"), ROOT / "build/tensorflow-venv/bin/python"
    ],
    "tfrecord": [os.environ.get("LOCKSTEP_VENV_PYTHON"), ROOT / "build/venv/bin/python"]
}
HINTS = {
    "tensorflow": "scripts/bench --only records makes build/tensorflow-venv, in which this test "
                  "runs; "
    "LOCKSTEP_TENSORFLOW_PYTHON names another",
    "tfrecord": "scripts/test makes build/venv, in which this test runs; LOCKSTEP_VENV_PYTHON "
                "names another"
}


def exec_python_with_peer():
    """Restarts in the first Python that has the peer; installs nothing."""
    has_peer = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{PEER}') is None)"
    for python in PYTHONS[PEER]:
        if python and os.path.exists(python) and subprocess.run([python, "-c", has_peer
                                                                 ]).returncode == 0:
            os.execv(python, [python, *sys.argv])
    print(f"skipped: no Python here has {PEER}. {HINTS[PEER]}")
    sys.exit(SKIPPED)


if importlib.util.find_spec(PEER) is None:
    exec_python_with_peer()

PACKINGS = ("none", "gzip", "zlib")
BIG = 2**63 - 1


class TensorFlow:
    def __init__(self):
        import tensorflow
        self.tf = tensorflow
        self.name = f"TensorFlow {tensorflow.__version__}"
        self.Example = tensorflow.train.Example

    @staticmethod
    def compression(packing):
        return "" if packing == "none" else packing.upper()

    def write(self, path, packing, serialized):
        options = self.tf.io.TFRecordOptions(compression_type=self.compression(packing))
        with self.tf.io.TFRecordWriter(path, options=options) as writer:
            for each in serialized:
                writer.write(each)

    def read(self, path, packing):
        return self.tf.data.TFRecordDataset(path, self.compression(packing)).as_numpy_iterator()

    def images(self, shards, packing):
        """Pairs of image and label, read by tf.io.parse_example."""
        wanted = {"image": self.tf.io.FixedLenFeature([], self.tf.string),
                  "label": self.tf.io.FixedLenFeature([], self.tf.int64)}
        parsed = self.tf.data.TFRecordDataset(shards, self.compression(packing)).batch(32).map(
            lambda serialized: self.tf.io.parse_example(serialized, wanted)).unbatch()
        return [(each["image"], int(each["label"])) for each in parsed.as_numpy_iterator()]


class TFRecordPackage:
    """Neither compresses nor verifies checksums: Python's modules compress, and the checksums of
    its writer are compared."""

    name = "the package tfrecord"

    def __init__(self):
        import tfrecord
        self.tfrecord = tfrecord
        self.Example = tfrecord.example_pb2.Example
        tfrecord.TFRecordWriter.serialize_tf_example = staticmethod(
            bytes)  # receives serialized records

    def write_plain(self, path, serialized):
        writer = self.tfrecord.TFRecordWriter(path)
        for each in serialized:
            writer.write(each)
        writer.close()

    def write(self, path, packing, serialized):
        self.write_plain(path, serialized)
        if packing != "none":
            file = pathlib.Path(path)
            file.write_bytes({"gzip": gzip, "zlib": zlib}[packing].compress(file.read_bytes()))

    def read(self, path, packing):
        content = pathlib.Path(path).read_bytes()
        if packing != "none":
            content = {"gzip": gzip, "zlib": zlib}[packing].decompress(content)
        with tempfile.TemporaryDirectory() as directory:
            plain, again = pathlib.Path(directory, "plain"), pathlib.Path(directory, "again")
            plain.write_bytes(content)
            serialized = [bytes(each) for each in self.tfrecord.tfrecord_iterator(str(plain))]
            self.write_plain(str(again), serialized)
            if again.read_bytes() != content:
                sys.exit(f"{path}: lengths or checksums are not those of {self.name}")
        return serialized

    def images(self, shards, packing):
        description = {"image": "byte", "label": "int"}
        for shard in shards:
            for serialized in self.read(shard, packing):
                features = self.Example.FromString(serialized).features
                found = self.tfrecord.reader.extract_feature_dict(features, description, {
                    "byte": "bytes_list", "float": "float_list", "int": "int64_list"})
                yield found["image"], int(found["label"][0])


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def floats_of(values):
    return [struct.unpack("<f", struct.pack("<I", value))[0] for value in values]


def feature(kind, *values):
    return {"kind": kind, "values": list(values)}


def records():
    """Every kind, with no, one and several values; special names and values."""
    text = "\u00e4\u20ac\U0001f600".encode()
    yield {"image": feature("bytes", bytes(range(256)).hex()), "label": feature("int64", 7)}
    yield {
        "bytes": feature("bytes", "", b"\0\xff".hex(), text.hex()),
        "empty bytes": feature("bytes"),
        "floats": feature("float", bits(0.0), bits(-0.0), bits(1.5), bits(float("inf")),
                          bits(1e-45)),
        "empty floats": feature("float"),
        "integers": feature("int64", 0, 1, -1, BIG, -BIG - 1),
        "empty integers": feature("int64"),
        text.decode(): feature("int64", 3),
        "": feature("float", bits(2.0))
    }
    yield {}
    yield {"no kind": feature("missing"), "long": feature("bytes", "ab" * 100_000)}
    for i in range(300):
        yield {
            "many": feature("int64", *range(-i, i)),
            "values": feature("float", *(bits(j / 3) for j in range(i))),
            "texts": feature("bytes", *(f"{j}".encode().hex() for j in range(i % 7)))
        }


def to_example(peer, record):
    example = peer.Example()
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


def from_example(peer, serialized):
    record = {}
    for name, made in peer.Example.FromString(serialized).features.feature.items():
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
    """Serialized as by protobuf."""
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes(digits) + bytes([value])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def unpacked_example():
    """The unpacked integers 1, -2 and floats 0.5, 2, as of other writers; and a duplicate name."""
    integers = field(3, b"\x08\x01\x08" + varint(2**64 - 2))
    floats = field(2, b"\x0d" + struct.pack("<f", 0.5) + b"\x0d" + struct.pack("<f", 2))
    replaced = field(1, field(1, b"gone"))
    return field(
        1, b"".join(
            field(1,
                  field(1, name) + field(2, value))
            for name, value in ((b"n", replaced), (b"x", floats), (b"n", integers))))


def differ(found, expected, what):
    found, expected = list(found), list(expected)
    if len(found) != len(expected):
        sys.exit(f"{what}: expected {len(expected)} records; there are {len(found)}")
    for number, (one, other) in enumerate(zip(found, expected)):
        if one != other:
            sys.exit(
                f"{what}: record {number}: expected {str(other)[:500]}; it is {str(one)[:500]}")
    print(f"{what}: {len(found)} records are the same")


def peer_writes(peer, directory, record_lists):
    expected = list(records()) + [from_example(peer, unpacked_example())]
    for packing in PACKINGS:
        path = str(directory / f"theirs-{packing}.tfrecord")
        examples = [to_example(peer, record).SerializeToString() for record in records()]
        peer.write(path, packing, examples + [unpacked_example()])
        lines = subprocess.run([record_lists, "print", path], check=True, stdout=subprocess.PIPE,
                               text=True).stdout
        differ(map(json.loads, lines.splitlines()), expected, f"written by {peer.name}, {packing}")


def lockstep_writes(peer, directory, record_lists):
    lines = "".join(json.dumps(record) + "\n" for record in records())
    for packing in PACKINGS:
        path = str(directory / f"ours-{packing}.tfrecord")
        subprocess.run([record_lists, "write", path, packing], check=True, input=lines, text=True)
        found = (from_example(peer, each) for each in peer.read(path, packing))
        differ(found, records(), f"written by Lockstep, {packing}")


def write_idx(path, extents, content):
    head = struct.pack(f">HBB{len(extents)}I", 0, 8, len(extents), *extents)
    with gzip.open(path, "wb") as file:
        file.write(head + content)


def lockstep_converts(peer, directory, lockstep):
    """Tests the shards of `lockstep data convert`."""
    images = [bytes((i * 31 + j) % 256 for j in range(6 * 5)) for i in range(100)]
    write_idx(directory / "train-images-idx3-ubyte.gz", (100, 6, 5), b"".join(images))
    write_idx(directory / "train-labels-idx1-ubyte.gz", (100,), bytes(i % 10 for i in range(100)))
    for packing in PACKINGS:
        output = directory / f"converted-{packing}"
        subprocess.run([
            lockstep, "data", "convert", "idx", "--input", directory, "--output", output,
            "--shards", "3", "--compression", packing
        ], check=True, stdout=subprocess.DEVNULL)
        shards = sorted(str(path) for path in output.glob("*.tfrecord"))
        differ(peer.images(shards, packing), [(image, i % 10) for i, image in enumerate(images)],
               f"converted by Lockstep, {packing}")


def main():
    record_lists, lockstep = sys.argv[2:]
    peer = {"tensorflow": TensorFlow, "tfrecord": TFRecordPackage}[PEER]()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        peer_writes(peer, directory, record_lists)
        lockstep_writes(peer, directory, record_lists)
        lockstep_converts(peer, directory, lockstep)
    print(f"{peer.name} and Lockstep read each other's records")


if __name__ == "__main__":
    main()
