"""The data sets of scripts/check_onnx: files for Lockstep, and the same samples as arrays for
onnxruntime."""

import csv
import dataclasses
import gzip
import itertools
import pathlib
import random
import struct
import zlib

import numpy

SAMPLES = 1000
BEGIN, END = 256, 257  # after the tokens of tokenizer=bytes
ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclasses.dataclass
class Data:
    """Values of --data, and the samples of `test` as arrays."""

    train: str
    test: str
    samples: str  # the first SAMPLES of test
    inputs: dict  # by name of the network's input: uint8 pixels [N, H, W, C], int32, or float32
    labels: numpy.ndarray  # [N], or [N, T] with -1 where there is none
    features: list = dataclasses.field(default_factory=list)  # further options of the training


def read_idx(path):
    data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    axes = data[3]
    return numpy.frombuffer(data, "uint8", offset=4 +
                            4 * axes).reshape(struct.unpack(f">{axes}I", data[4:4 + 4 * axes]))


def write_idx(directory, part, pixels, labels):
    directory.mkdir(parents=True, exist_ok=True)
    for name, array in ((f"{part}-images-idx{pixels.ndim}-ubyte", pixels),
                        (f"{part}-labels-idx1-ubyte", labels)):
        shape = struct.pack(f">{array.ndim}I", *array.shape)
        (directory /
         name).write_bytes(bytes([0, 0, 8, array.ndim]) + shape + array.astype("uint8").tobytes())


def of_idx(directory, folder, count=None):
    """The first `count` test images of `directory` (None: all); the first ones are also written to
    `folder`."""
    def part(name):
        return read_idx(next(path for path in directory.iterdir() if path.name.startswith(name)))

    pixels, labels = part("t10k-images"), part("t10k-labels").astype("int32")
    write_idx(folder, "t10k", pixels[:SAMPLES], labels[:SAMPLES])
    tested = directory
    if count is not None:
        pixels, labels, tested = pixels[:count], labels[:count], folder.with_name(
            f"{folder.name}-{count}")
        write_idx(tested, "t10k", pixels, labels)
    pixels = pixels if pixels.ndim == 4 else pixels[..., None]
    return Data(f"idx:{directory}:train", f"idx:{tested}:test", f"idx:{folder}:test",
                {"features": pixels}, labels)


def fields(message):
    """The fields of a message of protobuf, (number, bytes or integer)."""
    position = 0

    def varint():
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(message):
        key = varint()
        value = varint()
        if key & 7 == 2:
            position += value
            value = message[position - value:position]
        yield key >> 3, value


def examples(path):
    """The features of each tf.train.Example of a TFRecord file, by name: a value of bytes or
    integers."""
    data = memoryview(path.read_bytes())
    position = 0
    while position < len(data):
        size = struct.unpack_from("<Q", data, position)[0]
        record = data[position + 12:position + 12 + size]
        position += size + 16
        features = {}
        for _, feature_map in fields(record):
            for _, entry in fields(feature_map):
                entry = dict(fields(entry))
                for kind, values in fields(entry[2]):
                    first = next(fields(values))[1]
                    features[bytes(entry[1]).decode()] = first[0] if kind == 3 and not isinstance(
                        first, int) else first
        yield features


def cifar10(source, work, count=None):
    """CIFAR-10 from TFRecord files of JPEG images, decoded once, so that both programs read the
    same pixels."""
    import io

    from PIL import Image
    directory = work / "cifar10"
    for part, pattern in (("train", "train-*.tfrecord*"), ("t10k", "test-*.tfrecord*")):
        if (directory / f"{part}-labels-idx1-ubyte").exists():
            continue
        records = [(numpy.asarray(Image.open(io.BytesIO(record["image/encoded"])).convert("RGB")),
                    record["image/class/label"])
                   for path in sorted(source.glob(pattern))
                   for record in examples(path)]
        write_idx(directory, part, numpy.stack([pixels for pixels, _ in records]),
                  numpy.array([label for _, label in records]))
    return dataclasses.replace(of_idx(directory, work / "cifar10-samples", count),
                               features=["--images", "cifar10"])


def write_table(path, head, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def padded(texts, length, fill=0):
    result = numpy.full((len(texts), length), fill, "int32")
    for row, text in zip(result, texts):
        row[:len(text)] = text
    return result


def as_targets(texts, length):
    """Tokens [N, T] that a decoder reads, and those that follow."""
    tokens = [list(text.encode()) for text in texts]
    return padded([[BEGIN, *text] for text in tokens],
                  length), padded([[*text, END] for text in tokens], length, -1)


def numbers(work):
    """Pairs of texts: a number, and its digits in words."""
    words = "zero one two three four five six seven eight nine".split()
    chosen = random.Random(1).sample(range(1000, 10000), 6000 + SAMPLES)
    rows = [(number, " ".join(words[int(digit)] for digit in str(number))) for number in chosen]
    write_table(work / "numbers.csv", ["number", "words"], rows[SAMPLES:])
    write_table(work / "numbers-test.csv", ["number", "words"], rows[:SAMPLES])
    tokens, labels = as_targets([text for _, text in rows[:SAMPLES]], 25)
    source = padded([list(str(number).encode()) for number, _ in rows[:SAMPLES]], 6)
    test = f"text:{work / 'numbers-test.csv'}"
    return Data(
        f"text:{work / 'numbers.csv'}:source=number,target=words,tokenizer=bytes,length=6,"
        "target-length=25",
        test, test, {
            "source": source,
            "source_segments": (source > 0).astype("int32"),
            "tokens": tokens
        }, labels)


def sentences(work):
    """Texts of two classes, which share all words but one."""
    parts = (("The captain", "My neighbor", "An old friend", "The new guest",
              "Somebody"), ("quickly", "slowly", "rarely", "often",
                            "never"), ("paints", "describes", "finds", "likes", "draws"),
             ("the ferry", "a schooner", "the harbor", "a lighthouse", "the soup", "an onion",
              "the dough", "a tomato"), ("today.", "at night.", "in winter.", "after a long walk."))
    rows = [(" ".join(words), "sea" if words[3] in parts[3][:4] else "kitchen")
            for words in itertools.product(*parts)]
    random.Random(1).shuffle(rows)
    write_table(work / "sentences.csv", ["sentence", "topic"], rows[SAMPLES:])
    write_table(work / "sentences-test.csv", ["sentence", "topic"], rows[:SAMPLES])
    tokens = padded([list(text.encode()) for text, _ in rows[:SAMPLES]], 64)
    test = f"text:{work / 'sentences-test.csv'}"
    return Data(
        f"text:{work / 'sentences.csv'}:column=sentence,label=topic,tokenizer=bytes,length=64",
        test, test, {
            "tokens": tokens,
            "segments": (tokens > 0).astype("int32")
        }, numpy.array([topic == "sea" for _, topic in rows[:SAMPLES]], "int32"))


def text(work):
    """This documentation; the last part is for tests."""
    length = 64
    everything = b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md")))
    cut = len(everything) - SAMPLES * length - 1  # the last byte only follows
    (work / "text.txt").write_bytes(everything[:cut])
    (work / "text-test.txt").write_bytes(everything[cut:])
    tokens = numpy.frombuffer(everything[cut:], "uint8").astype("int32")
    test = f"text:{work / 'text-test.txt'}"
    return Data(f"text:{work / 'text.txt'}:tokenizer=bytes,length={length},stride=16", test, test,
                {"tokens": tokens[:-1].reshape(-1, length)}, tokens[1:].reshape(-1, length))


def png(pixels):
    """The bytes of a PNG of pixels [H, W, 3]."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(
            ">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return (
        b"\x89PNG\r\n\x1a\n" +
        chunk(b"IHDR", struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 2, 0, 0, 0)) +
        chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def shapes(work):
    """Images with a colored shape on noise, and their captions."""
    colors = {
        "red": (220, 40, 40),
        "green": (40, 200, 60),
        "blue": (50, 70, 230),
        "yellow": (230, 220, 50)
    }
    generator = numpy.random.default_rng(1)
    folder = work / "shapes"
    folder.mkdir(parents=True, exist_ok=True)
    rows, images = [], []
    for number in range(3 * SAMPLES):
        pixels = generator.integers(0, 90, (32, 32, 3), dtype="uint8")
        color, kind = generator.choice(list(colors)), generator.choice(["square", "circle", "bar"])
        size, (y, x) = int(generator.integers(4, 7)), generator.integers(8, 24, 2)
        rows_of, columns = numpy.mgrid[:32, :32]
        down, right = abs(rows_of - y), abs(columns - x)
        inside = {
            "square": (down < size) & (right < size),
            "circle": down**2 + right**2 < size**2,
            "bar": (down < 2) & (right < size + 1)
        }[str(kind)]
        pixels[inside] = colors[str(color)]
        (folder / f"{number}.png").write_bytes(png(pixels))
        rows.append(
            (f"{number}.png", f"a {color} {kind} {'above' if y < 16 else 'below'} the middle"))
        images.append(pixels)
    write_table(folder / "test.csv", ["image", "caption"], rows[:SAMPLES])
    write_table(folder / "train.csv", ["image", "caption"], rows[SAMPLES:])
    tokens, labels = as_targets([caption for _, caption in rows[:SAMPLES]], 36)
    test = f"text:{folder / 'test.csv'}"
    return Data(f"text:{folder / 'train.csv'}:image=image,target=caption,tokenizer=bytes,length=36",
                test, test, {
                    "image": numpy.stack(images[:SAMPLES]),
                    "tokens": tokens
                }, labels)


def people(work):
    """A table of numbers and of a word, which is a separate input."""
    generator = random.Random(1)
    cities = ["Athens", "Berne", "Cairo", "Delhi", "Essen"]
    rows = []
    for _ in range(5 * SAMPLES):
        age, income, city = generator.randint(18, 80), round(generator.gauss(3, 1),
                                                             3), generator.randrange(5)
        rows.append((age, income, cities[city],
                     "yes" if income * 10 + 5 * city + generator.gauss(0, 3) > age else "no"))
    (work / "people.json"
     ).write_text('{"label": "bought", "features": [{"column": "age", "scale": "none"}, '
                  '{"column": "income", "scale": "none"}, '
                  '{"column": "city", "kind": "categorical", "output": "index"}]}')
    write_table(work / "people.csv", ["age", "income", "city", "bought"], rows[SAMPLES:])
    write_table(work / "people-test.csv", ["age", "income", "city", "bought"], rows[:SAMPLES])
    test = f"csv:{work / 'people-test.csv'}"
    return Data(
        f"csv:{work / 'people.csv'}", test, test, {
            "features": numpy.array([row[:2] for row in rows[:SAMPLES]], "float32"),
            "city": numpy.array([cities.index(row[2]) for row in rows[:SAMPLES]], "int32")
        }, numpy.array([row[3] == "yes" for row in rows[:SAMPLES]], "int32"),
        ["--features", str(work / "people.json")])
