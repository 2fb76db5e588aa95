"""What onnxruntime computes with exported networks is what Lockstep computes, and exported networks
can be trained on.

Usage: export_test.py RANDOM_MODELS LOCKSTEP. Exits with 77 where no Python has onnx and
onnxruntime. LOCKSTEP_TORCH_PYTHON names a Python with torchvision, for the test that loads a
network in it.
"""

import importlib.util
import json
import os
import pathlib
import pickle
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile
import zlib

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
UNDECIDED = 1e-5  # outputs this close may be in either order
BATCH = 100
PYTHONS = [os.environ.get("LOCKSTEP_ONNX_PYTHON"), ROOT / "build/onnx-venv/bin/python"]
PEERS = ("onnx", "onnxruntime")
TORCH_PYTHONS = [os.environ.get("LOCKSTEP_TORCH_PYTHON"), ROOT / "build/bench-venv/bin/python"]


def exec_python_with_peers():
    """Continues in the first Python that has them; installs nothing."""
    has_peers = ("import importlib.util, sys; "
                 f"sys.exit(any(importlib.util.find_spec(peer) is None for peer in {PEERS}))")
    for python in PYTHONS:
        if python and os.path.exists(python) and subprocess.run([python, "-c", has_peers
                                                                 ]).returncode == 0:
            os.execv(python, [python, *sys.argv])
    print(
        "skipped: no Python here has onnx and onnxruntime. scripts/test makes build/onnx-venv, in "
        "which this test runs; LOCKSTEP_ONNX_PYTHON names another")
    sys.exit(SKIPPED)


if any(importlib.util.find_spec(peer) is None for peer in PEERS):
    exec_python_with_peers()

import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402

RANDOM_MODELS, LOCKSTEP = sys.argv[1:3]
NETWORKS = pathlib.Path(__file__).parent / "networks"


def integer_sums_may_saturate():
    """On x86 without VNNI onnxruntime's integer layers add two products of 8 bits in 16 bits
    (docs/export.md)."""
    return platform.machine() == "x86_64" and "vnni" not in pathlib.Path(
        "/proc/cpuinfo").read_text()


def session(path, weight_bits=8):
    options = onnxruntime.SessionOptions()
    if weight_bits > 7 and integer_sums_may_saturate() and b"QuantizeLinear" in pathlib.Path(
            path).read_bytes():
        # Executes the graph as written, layer by layer.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def channels_first(array):
    """[N, H, W, C] as [N, C, H, W]; other arrays as they are."""
    return numpy.ascontiguousarray(array.transpose(0, 3, 1, 2)) if array.ndim == 4 else array


def computed(path, feeds):
    """The outputs of a model, in batches to limit the memory."""
    runner = session(path)
    samples = len(next(iter(feeds.values())))
    parts = [runner.run(None, {name: values[start:start + BATCH] for name, values in feeds.items()})
             for start in range(0, samples, BATCH)]
    return [numpy.concatenate(output) for output in zip(*parts)]


def run_lockstep(*arguments):
    return subprocess.run([LOCKSTEP, *map(str, arguments)], capture_output=True, text=True)


def lockstep(*arguments):
    result = run_lockstep(*arguments)
    if result.returncode != 0:
        raise AssertionError(f"lockstep {' '.join(map(str, arguments))}: {result.stderr}")
    return result.stdout


def python_with(module, pythons):
    """The first of these programs that has a module."""
    has_module = ("import importlib.util, sys; "
                  f"sys.exit(importlib.util.find_spec('{module}') is None)")
    return next((python for python in pythons if python and os.path.exists(python) and
                 subprocess.run([python, "-c", has_module]).returncode == 0), None)


def losses(output):
    """Losses of a training with --json, and the hash of the final parameters."""
    events = [json.loads(line) for line in output.splitlines()]
    return ([event["loss"] for event in events if event["event"] == "step"],
            events[-1]["parameter_hash"])


def write_model(path, nodes, constants=(), inputs=("x",)):
    """A model of float32 inputs [n, 4], whose output is y."""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(nodes, "g", [
        value(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in inputs
    ], [value("y", onnx.TensorProto.FLOAT, ["n", 4])], list(constants))
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)


def predicted(checkpoint, data, directory, outputs="logits"):
    """The logits of `lockstep predict`, [records, classes]; or the "outputs" of a regression."""
    output = directory / "predicted.jsonl"
    options = ["--outputs", "logits"] if outputs == "logits" else []
    lockstep("predict", "--checkpoint", checkpoint, "--data", data, *options, "--output", output,
             "--quiet")
    return numpy.array([json.loads(line)[outputs] for line in output.read_text().splitlines()],
                       dtype="float32")


def png(pixels):
    """The bytes of a PNG of pixels [H, W, 3]."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(
            ">I", zlib.crc32(kind + data))
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + pixels[row].tobytes() for row in range(height))
    return (b"\x89PNG\r\n\x1a\n" +
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class StateDict(pickle.Unpickler):
    """Reads a file of torch.save without PyTorch."""

    def __init__(self, path):
        self.archive = zipfile.ZipFile(path)
        super().__init__(self.archive.open("archive/data.pkl"))

    def find_class(self, module, name):
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, shape, strides, *_: storage[offset:].reshape(shape)
        return dict if name == "OrderedDict" else {"FloatStorage": "float32"}[name]

    def persistent_load(self, pid):
        _, kind, key, _, count = pid
        values = numpy.frombuffer(self.archive.read(f"archive/data/{key}"), dtype=kind)
        assert values.size == count
        return values


def safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {
        name: numpy.frombuffer(data[8 + size:][slice(*entry["data_offsets"])],
                               dtype="float32").reshape(entry["shape"])
        for name, entry in header.items()
    }


class Export(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.directory = pathlib.Path(scratch.name)

    def assert_close(self, actual, expected):
        self.assertEqual(actual.shape, expected.shape)
        self.assertLess(
            numpy.abs(actual - expected).max(), TOLERANCE * max(1,
                                                                numpy.abs(expected).max()))

    def assert_same_top(self, actual, expected):
        """Expects equal classes for each sample, unless rounding decides them."""
        largest = numpy.sort(expected, axis=1)
        if expected.shape[1] > 1:
            decided = largest[:, -1] - largest[:,
                                               -2] > UNDECIDED * max(1,
                                                                     numpy.abs(expected).max())
            numpy.testing.assert_array_equal(actual.argmax(1)[decided], expected.argmax(1)[decided])

    def test_computes_what_lockstep_computes(self):
        subprocess.run([RANDOM_MODELS, NETWORKS, self.directory], check=True)
        files = sorted(self.directory.glob("*.json"))
        self.assertGreater(len(files), 30)
        self.assertGreater(sum(json.loads(file.read_text())["samples"] == 1000 for file in files),
                           20)
        for file in files:
            name = file.stem
            about = json.loads(file.read_text())

            def array(kind, number, entry, kind_of_elements, name=name, about=about):
                values = numpy.fromfile(self.directory / f"{name}.{kind}.{number}",
                                        dtype=kind_of_elements)
                return values.reshape([about["samples"], *entry["shape"]])

            with self.subTest(name):
                path = self.directory / f"{name}.onnx"
                onnx.checker.check_model(onnx.load(path), full_check=True)
                feeds = {entry["name"]: channels_first(array("in", k, entry, entry["type"]))
                         for k, entry in enumerate(about["inputs"])}
                self.assertEqual([output.name for output in session(path).get_outputs()],
                                 [entry["name"] for entry in about["outputs"]])
                for k, (entry, actual) in enumerate(zip(about["outputs"], computed(path, feeds))):
                    with self.subTest(entry["name"]):
                        expected = channels_first(array("out", k, entry, "float32"))
                        self.assert_close(actual, expected)
                        if expected.ndim == 2:
                            self.assert_same_top(actual, expected)

    def test_exports_a_trained_network_of_images_with_its_preprocessing(self):
        random = numpy.random.default_rng(1)
        pixels = random.integers(0, 256, (24, 16, 16, 3), dtype="uint8")
        for number, image in enumerate(pixels):
            folder = self.directory / "images" / f"class{number // 12}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:02}.png").write_bytes(png(image))
        data = f"images:{self.directory / 'images'}"
        run = self.directory / "run"
        lockstep("train", "--model", "mobilenet_v2:0.25", "--data", data, "--images",
                 "resize=16,normalize=imagenet", "--global-batch", 8, "--steps", 4,
                 "--checkpoint-dir", run, "--quiet")
        model = self.directory / "model.onnx"
        for options in ([], ["--no-fold"]):
            lockstep("checkpoint", "export", run, "--output", model, "--with-preprocessing",
                     *options)
            actual = session(model).run(None, {"features": channels_first(pixels)})[0]
            self.assert_close(actual, predicted(run, data, self.directory))
        metadata = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
        self.assertEqual(json.loads(metadata["lockstep.classes"]), ["class0", "class1"])
        self.assertEqual(metadata["lockstep.step"], "4")
        self.assertEqual(metadata["lockstep.preprocessing"], "graph")
        before = model.read_bytes()
        lockstep("checkpoint", "export", run, "--output", model, "--with-preprocessing",
                 "--no-fold")
        self.assertEqual(model.read_bytes(), before)

        repository = self.directory / "repository" / "images"
        lockstep("checkpoint", "export", run, "--output", repository, "--layout", "triton")
        self.assertEqual((repository / "labels.txt").read_text(), "class0\nclass1\n")
        self.assertIn("dims: [ 3, 16, 16 ]", (repository / "config.pbtxt").read_text())
        onnx.checker.check_model(onnx.load(repository / "1" / "model.onnx"))

    def test_names_the_classes_that_the_data_name(self):
        for number in range(8):
            folder = self.directory / "images" / ("cat", "dog")[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            (folder /
             f"{number}.png").write_bytes(png(numpy.full((8, 8, 3), 30 * number, dtype="uint8")))
        shards, run = self.directory / "shards", self.directory / "run"
        model = self.directory / "model.onnx"
        lockstep("data", "convert", "images", "--input", self.directory / "images", "--output",
                 shards)
        for options, names in (([], ["cat", "dog"]), (["--classes",
                                                       3], None)):  # two of them named
            with self.subTest(str(options)):
                shutil.rmtree(run, ignore_errors=True)
                lockstep("train", "--model", "linear", "--data", f"{shards}:train", "--images",
                         "resize=8", *options, "--global-batch", 8, "--steps", 1,
                         "--checkpoint-dir", run, "--quiet")
                lockstep("checkpoint", "export", run, "--output", model)
                metadata = {entry.key: entry.value for entry in onnx.load(model).metadata_props}
                self.assertEqual(json.loads(metadata.get("lockstep.classes", "null")), names)

    def test_quantizes_a_trained_network_of_images(self):
        random = numpy.random.default_rng(1)
        labels = numpy.arange(240) % 3
        pixels = random.integers(0, 100, (240, 16, 16, 3), dtype="uint8")
        pixels[numpy.arange(240), :, :, labels] += 60  # the class is the color
        for number, image in enumerate(pixels):
            folder = self.directory / "images" / f"class{labels[number]}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:03}.png").write_bytes(png(image))
        data = f"images:{self.directory / 'images'}"
        bits = 7 if integer_sums_may_saturate() else 8
        for name, least in ("cnn", 3), ("resnet18", 18), ("mobilenet_v2:0.25", 40):
            with self.subTest(name):
                run = self.directory / name.replace(":", "_")
                lockstep("train", "--model", name, "--data", data, "--images",
                         "resize=16,normalize=imagenet", "--global-batch", 24, "--steps", 40,
                         "--checkpoint-dir", run, "--quiet")
                model = self.directory / "model.onnx"
                quantize = [
                    "quantize", "--checkpoint", run, "--data", data, "--output", model,
                    "--with-preprocessing", "--samples", 64, "--max-drop", 2, "--weight-bits", bits,
                    "--json"
                ]
                report = json.loads(lockstep(*quantize))
                before = model.read_bytes()
                onnx.checker.check_model(onnx.load(model), full_check=True)
                logits = session(model, bits).run(None, {"features": channels_first(pixels)})[0]
                # A value between two integers may be rounded to either.
                self.assertAlmostEqual((logits.argmax(1) == labels).mean(), report["accuracy"],
                                       delta=0.02)
                self.assertLessEqual(report["drop"], 2)
                self.assertGreaterEqual(len(report["layers"]), least)
                self.assertGreaterEqual(sum(layer["int8"] for layer in report["layers"]),
                                        least // 2)
                self.assertEqual(report["bytes"], len(before))
                self.assertLess(report["bytes"], 0.6 * report["float32_bytes"])
                if name == "resnet18":
                    self.assertLess(report["bytes"], 0.27 * report["float32_bytes"])
                    quantize[-1:] = ["--quiet", "--calibration", "entropy"]
                    lockstep(*quantize)
                    self.assertNotEqual(model.read_bytes(), before)
                    quantize[-1] = "min-max"
                    lockstep(*quantize)
                    self.assertEqual(model.read_bytes(), before)

    def test_writes_a_trained_network_as_a_state_dict(self):
        run = self.directory / "run"
        lockstep("train", "--model", "cnn", "--data", "synthetic:12x12x3,4,64", "--global-batch",
                 32, "--steps", 1, "--checkpoint-dir", run, "--quiet")
        for ending in ("pt", "safetensors"):
            lockstep("checkpoint", "export", run, "--output", self.directory / f"model.{ending}")
        own = safetensors(self.directory / "model.safetensors")
        state = StateDict(self.directory / "model.pt").load()
        self.assertEqual(list(state), [
            "conv2d.weight", "conv2d.bias", "conv2d_1.weight", "conv2d_1.bias", "dense.weight",
            "dense.bias", "dense_1.weight", "dense_1.bias"
        ])
        numpy.testing.assert_array_equal(state["conv2d.weight"],
                                         own["conv2d/kernel"].transpose(0, 3, 1, 2))
        flat = own["dense/kernel"].reshape(128, -1, 64).transpose(0, 2, 1).reshape(128, -1)
        numpy.testing.assert_array_equal(state["dense.weight"], flat)
        numpy.testing.assert_array_equal(state["dense_1.bias"], own["dense_1/bias"])

    def test_exports_a_trained_network_of_a_table_with_its_scaling(self):
        random = numpy.random.default_rng(1)
        numbers = random.normal(2000, 50, (40, 3)).round(3)
        numbers[[3, 3, 7], [0, 1, 1]] = numpy.nan
        table = self.directory / "table.csv"
        lines = [",".join([*map(str, row), "ab"[number % 2]]) for number, row in enumerate(numbers)]
        table.write_text("\n".join(["x,y,z,label", *lines]) + "\n")
        run = self.directory / "run"
        data = f"csv:{table}:label=label,scale=standard,missing=mean"
        lockstep("train", "--model", "mlp:8", "--data", data, "--global-batch", 8, "--steps", 4,
                 "--checkpoint-dir", run, "--quiet")
        model = self.directory / "model.onnx"
        lockstep("checkpoint", "export", run, "--output", model, "--with-preprocessing")
        actual = session(model).run(None, {"features": numbers.astype("float32")})[0]
        self.assert_close(actual, predicted(run, f"csv:{table}:label=label", self.directory))

    def mixed_table(self, rows=80):
        """A table of numbers, words and dates, of which some are missing, its fields by column, and
        the inputs of a graph that reads it."""
        random = numpy.random.default_rng(2)
        seconds = random.integers(-3 * 10**9, 4 * 10**9, rows)
        seconds[:4] = [951782400, -62135596800 + 10**9, 0, -1]
        missing = random.random((rows, 5)) < 0.1
        numbers = numpy.column_stack([random.normal(40, 12, rows), random.exponential(3e4, rows)])
        numbers = numbers.round(2)
        numbers[missing[:, :2]] = numpy.nan
        colors = random.choice(["red", "green", "blue", "a b\u00e9"], rows).astype(object)
        sizes = random.choice(["S", "M", "L"], rows).astype(object)
        for number, spelling in enumerate(["", "NA", "?", "None"]):
            sizes[7 * number + 1] = spelling
        dates = numpy.array([str(numpy.datetime64(int(one), "s")) for one in seconds], object)
        dates[missing[:, 4]] = ""
        lines = ["age,income,color,size,since,label"]
        for row in range(rows):
            fields = ["" if numpy.isnan(one) else str(one) for one in numbers[row]]
            fields += [colors[row], sizes[row], dates[row], "ab"[row % 2]]
            lines.append(",".join(fields))
        table = self.directory / "table.csv"
        table.write_text("\n".join(lines) + "\n")
        seconds[missing[:, 4]] = numpy.iinfo("int64").min
        return table, {
            "features": numbers.astype("float32"),
            "color": colors,
            "size": sizes,
            "since": seconds
        }

    def test_exports_tables_of_words_dates_and_missing_values(self):
        table, inputs = self.mixed_table()
        indicator = {"missing": "indicator"}
        since = [{"column": "since", "date": part} | indicator
                 for part in ("days", "year", "month", "weekday")]
        words = {"kind": "categorical", "unknown": "column"}
        features = [
            {"column": "size"} | words, {"column": "age"} | indicator,
            {"column": "age", "kind": "bucketized", "boundaries": [18, 30.5, 65]} | indicator,
            {"column": "income", "clip": [100, 5e4], "log": True, "missing": "mean"}, *since[:2],
            {"column": "color", "kind": "categorical"}, *since[2:],
            {"column": "since", "date": "days", "scale": "none", "missing": -7},
            {"column": "income", "scale": "minmax", "missing": 12.5},
            {"column": "since", "date": "year", "kind": "bucketized", "boundaries": [1970, 2001],
             "missing": 1980},
        ]
        index = {"output": "index"}
        cases = {
            "mlp:8": features,
            "wide_deep:8,embedding=4": [features[1], {"column": "color", "kind": "categorical"}
                                        | index, {"column": "size"} | words | index],
            "wide_deep:8": [{"column": "color", "kind": "categorical"} | index,
                            {"column": "size"} | words, {"column": "color", "kind": "categorical"}],
        }
        for model, described in cases.items():
            with self.subTest(model, features=len(described)):
                read = {one["column"] for one in described}
                dropped = [one for one in ("age", "income", "color", "size", "since")
                           if one not in read]
                file, run = self.directory / "features.json", self.directory / "run"
                file.write_text(json.dumps({"label": "label", "drop": dropped,
                                            "features": described}))
                shutil.rmtree(run, ignore_errors=True)
                lockstep("train", "--model", model, "--data", f"csv:{table}", "--features", file,
                         "--global-batch", 8, "--steps", 20, "--checkpoint-dir", run, "--quiet")
                path = self.directory / "model.onnx"
                lockstep("checkpoint", "export", run, "--output", path, "--with-preprocessing")
                loaded = onnx.load(path)
                onnx.checker.check_model(loaded, full_check=True)
                self.assertEqual([one.domain for one in loaded.opset_import], [""])
                graph = session(path)
                columns = json.loads(graph.get_modelmeta().custom_metadata_map.get(
                    "lockstep.columns", "[]"))
                used = {"features": inputs["features"][:, [("age", "income").index(one)
                                                           for one in columns]]}
                used |= {name: inputs[name] for name in read & {"color", "size", "since"}}
                if not columns:
                    del used["features"]
                self.assertEqual({one.name for one in graph.get_inputs()}, set(used))
                self.assert_close(graph.run(None, used)[0],
                                  predicted(run, f"csv:{table}", self.directory))
                if "size" in used:  # a word that the training does not have
                    other = table.read_text().replace(",S,", ",XXL,")
                    (self.directory / "other.csv").write_text(other)
                    used["size"] = numpy.where(used["size"] == "S", "XXL", used["size"])
                    expected = predicted(run, f"csv:{self.directory / 'other.csv'}",
                                         self.directory)
                    self.assert_close(graph.run(None, used)[0], expected)

    def test_exports_texts_of_bytes_and_characters(self):
        lines = ["a caf\u00e9", "hi", "the longest of all lines", "x y z"] * 4
        table = self.directory / "texts.csv"
        table.write_text("line,kind\n" + "".join(f"{line},{'ab'[number % 2]}\n"
                                                 for number, line in enumerate(lines)))
        encoders = {"bytes": lambda line: list(line.encode()),
                    "chars": lambda line: [ord(one) for one in line]}
        for tokenizer, encode in encoders.items():
            with self.subTest(tokenizer):
                run, path = self.directory / tokenizer, self.directory / f"{tokenizer}.onnx"
                lockstep("train", "--model", "minilm:1x16", "--data",
                         f"text:{table}:column=line,label=kind,tokenizer={tokenizer},length=12",
                         "--steps", 4, "--checkpoint-dir", run, "--quiet")
                lockstep("checkpoint", "export", run, "--output", path, "--with-preprocessing")
                onnx.checker.check_model(onnx.load(path), full_check=True)
                text = numpy.array([(encode(line) + 12 * [-1])[:12] for line in lines], "int32")
                graph = session(path)
                self.assertEqual([one.name for one in graph.get_inputs()], ["text"])
                self.assert_close(graph.run(None, {"text": text})[0],
                                  predicted(run, f"text:{table}", self.directory))
                text[0, 0] = 0x1F600  # neither a byte nor a character of the training
                with self.assertRaisesRegex(Exception, "out of data bounds"):
                    graph.run(None, {"text": text})

    def test_exports_a_standardized_target_in_its_unit(self):
        table = self.directory / "prices.csv"
        table.write_text("x,price\n" + "".join(f"{x},{1000 + 50 * x}\n" for x in range(40)))
        run, path = self.directory / "run", self.directory / "model.onnx"
        lockstep("train", "--model", "mlp:8", "--loss", "mse", "--data",
                 f"csv:{table}:targets=price", "--steps", 20, "--checkpoint-dir", run, "--quiet")
        lockstep("checkpoint", "export", run, "--output", path, "--with-preprocessing")
        expected = predicted(run, f"csv:{table}", self.directory, "outputs")
        self.assertGreater(expected.min(), 500)
        x = numpy.arange(40, dtype="float32")[:, None]
        actual = session(path).run(None, {"features": x})[0]
        numpy.testing.assert_allclose(actual, expected, rtol=1e-5)
        lockstep("checkpoint", "export", run, "--format", "torch", "--output",
                 self.directory / "model.pt")
        state = StateDict(self.directory / "model.pt").load()
        hidden = (x - x.mean()) / x.std() @ state["dense.weight"].T + state["dense.bias"]
        output = numpy.maximum(hidden, 0) @ state["dense_1.weight"].T + state["dense_1.bias"]
        numpy.testing.assert_allclose(output, expected, rtol=1e-5)

    def test_an_index_of_a_word_that_no_category_has_is_an_error(self):
        table, inputs = self.mixed_table()
        run, path = self.directory / "run", self.directory / "model.onnx"
        file = self.directory / "features.json"
        color = {"column": "color", "kind": "categorical", "output": "index"}
        file.write_text(json.dumps({"label": "label", "drop": ["age", "income", "size", "since"],
                                    "features": [color]}))
        lockstep("train", "--model", "wide_deep:8", "--data", f"csv:{table}", "--features", file,
                 "--steps", 1, "--checkpoint-dir", run, "--quiet")
        lockstep("checkpoint", "export", run, "--output", path, "--with-preprocessing")
        graph = session(path)
        self.assertEqual(len(graph.run(None, {"color": inputs["color"]})[0]), 80)
        with self.assertRaisesRegex(Exception, "out of data bounds"):
            graph.run(None, {"color": numpy.array(["red", "purple"], object)})

    def test_strips_what_the_training_has_learned_from_the_metadata(self):
        table, _ = self.mixed_table()
        run, path = self.directory / "run", self.directory / "model.onnx"
        lockstep("train", "--model", "mlp:8", "--data",
                 f"csv:{table}:label=label,categorical=color,drop=since+size,missing=mean",
                 "--steps", 1, "--checkpoint-dir", run, "--quiet")
        export = ("checkpoint", "export", run, "--output", path)

        def metadata(*options):
            lockstep(*export, *options)
            return session(path).get_modelmeta().custom_metadata_map

        kept = {"lockstep.preprocessing", "lockstep.activations", "lockstep.classes"}
        self.assertEqual(metadata("--strip-metadata").keys(), kept | {"lockstep.features"})
        self.assertEqual(
            metadata("--strip-metadata", "--with-preprocessing").keys(),
            kept | {"lockstep.columns"})
        self.assertNotIn(str(self.directory).encode(), path.read_bytes())
        whole = metadata("--with-preprocessing")
        for key in ("network", "step", "epoch", "features", "table"):
            self.assertIn(f"lockstep.{key}", whole)
        lockstep(*export[:-1], self.directory / "model.safetensors", "--strip-metadata")
        data = (self.directory / "model.safetensors").read_bytes()
        header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
        self.assertNotIn("__metadata__", header)
        own = safetensors(run_file := next(run.glob("step-*/model.safetensors")))
        self.assertIn(b"__metadata__", run_file.read_bytes())
        stripped = safetensors(self.directory / "model.safetensors")
        self.assertEqual(own.keys(), stripped.keys())
        for name, array in own.items():
            numpy.testing.assert_array_equal(array, stripped[name])

    def test_an_exported_network_trains_on_as_the_checkpoint_does(self):
        images, run = "synthetic:32x32x3,10,64", self.directory / "run"
        model = self.directory / "model.onnx"
        text, topics = self.directory / "text.txt", self.directory / "topics.csv"
        pairs = self.directory / "pairs.csv"
        text.write_text("A line of text, and another one.\n" * 30)
        topics.write_text("sentence,topic\n" +
                          "".join(f"{'word ' * (1 + n % 3)}{n},{'ab'[n % 2]}\n" for n in range(64)))
        pairs.write_text("number,word\n" +
                         "".join(f"{n},{'one two three four'.split()[n % 4]}\n" for n in range(64)))
        characters = f"text:{text}:tokenizer=bytes,length=16,stride=8"
        classified = f"text:{topics}:column=sentence,label=topic,tokenizer=bytes,length=20"
        translated = (f"text:{pairs}:source=number,target=word,tokenizer=bytes,length=4,"
                      "target-length=8")
        for name, data in (("linear", images), ("mlp", "synthetic:12x1x1,3,64"), ("cnn", images),
                           ("fast_cifar", images), ("resnet18", images),
                           ("mobilenet_v2:0.25", images), ("lstm:2x16", "synthetic:9x6x1,3,64"),
                           ("vit:1x64", images), ("gpt:1x32,dropout=0.1", characters),
                           ("gpt:2x32", characters), ("gpt:1x32,ffn=swiglu", characters),
                           ("bert:1x32", classified), ("minilm:2x32", classified),
                           ("lstm:2x16", classified), ("seq2seq:1x16", translated)):
            with self.subTest(f"{name}, {data.partition(':')[0]}"):
                shutil.rmtree(run, ignore_errors=True)
                train = ("train", "--data", data, "--global-batch", 8, "--optimizer", "sgd",
                         "--learning-rate", 0.01, "--json", "--log-every", 1)
                lockstep(*train, "--model", name, "--steps", 2, "--checkpoint-dir", run)
                lockstep("checkpoint", "export", run, "--output", model, "--no-fold")
                expected = losses(
                    lockstep(*train, "--model", name, "--init-from", run, "--steps", 3, "--seed", 2,
                             "--checkpoint-dir", "none"))
                actual = losses(
                    lockstep(*train, "--model", model, "--steps", 3, "--seed", 2,
                             "--checkpoint-dir", "none"))
                self.assertEqual(len(expected[0]), 3)
                numpy.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)

    def test_torchvision_loads_an_exported_residual_network(self):
        python = python_with("torchvision", TORCH_PYTHONS)
        if python is None:
            self.skipTest("no Python here has torchvision; LOCKSTEP_TORCH_PYTHON names one")
        pixels = numpy.random.default_rng(1).integers(0, 256, (6, 72, 72, 3), dtype="uint8")
        for number, image in enumerate(pixels):
            folder = self.directory / "images" / f"class{number // 3}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.png").write_bytes(png(image))
        data = f"images:{self.directory / 'images'}"
        run = self.directory / "run"
        numpy.save(self.directory / "pixels.npy", channels_first(pixels).astype("float32") / 255)
        for name in ("resnet18", "mobilenet_v2"):
            with self.subTest(name):
                shutil.rmtree(run, ignore_errors=True)
                lockstep("train", "--model", name, "--data", data, "--global-batch", 6, "--steps",
                         2, "--checkpoint-dir", run, "--quiet")
                lockstep("checkpoint", "export", run, "--output", self.directory / "model.pt")
                subprocess.run([python, "-c", f"""
import numpy, torch, torchvision
model = torchvision.models.{name}(num_classes=2).eval()
model.load_state_dict(torch.load("model.pt", weights_only=True))
with torch.no_grad():
    numpy.save("logits.npy", model(torch.from_numpy(numpy.load("pixels.npy"))).numpy())
"""], cwd=self.directory, check=True)
                self.assert_close(numpy.load(self.directory / "logits.npy"),
                                  predicted(run, data, self.directory))

    def assert_refused(self, arguments, *parts):
        """One line with these parts, exit status 2 or 3, and nothing is written."""
        before = sorted(self.directory.rglob("*"))
        result = run_lockstep(*arguments)
        self.assertIn(result.returncode, (2, 3), result.stderr)
        lines = [line for line in result.stderr.splitlines() if "error: " in line]
        self.assertEqual(len(lines), 1, result.stderr)
        for part in parts:
            self.assertIn(part, lines[0])
        self.assertEqual(sorted(self.directory.rglob("*")), before)

    def test_a_graph_with_control_flow_or_an_unknown_operator_is_refused(self):
        model = self.directory / "net.onnx"
        node = onnx.helper.make_node
        branch = onnx.helper.make_graph([node("Relu", ["x"], ["z"])], "branch", [], [
            onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["n", 4])
        ])
        yes = onnx.helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [True])
        train = ("train", "--model", model, "--data", "synthetic:4x1x1,4,32", "--steps", 1,
                 "--checkpoint-dir", self.directory / "run")
        write_model(model, [
            node("If", ["yes"], ["y"], name="choice", then_branch=branch, else_branch=branch)
        ], [yes])
        self.assert_refused(train, "without control flow", "choice", "(If)")
        write_model(model, [node("Det", ["x"], ["y"], name="volume")])
        self.assert_refused(train, "Det", "volume")
        write_model(model, [node("Relu", ["x"], ["y"], name="own", domain="com.example")])
        self.assert_refused(train, "com.example", "own")

    def test_an_incomplete_checkpoint_is_refused(self):
        run = self.directory / "run"
        lockstep("train", "--model", "mlp:8", "--data", "synthetic:4x1x1,3,64", "--global-batch", 8,
                 "--steps", 2, "--checkpoint-dir", run, "--quiet")
        weights = next(run.glob("step-*")) / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-8])
        for name in ("model.onnx", "model.pt", "model.safetensors"):
            self.assert_refused(("checkpoint", "export", run, "--output", self.directory / name),
                                "model.safetensors")
        self.assert_refused(("checkpoint", "export", run, "--layout", "triton", "--output",
                             self.directory / "repository" / "m"), "model.safetensors")
        next(run.glob("step-*/MANIFEST.json")).unlink()
        self.assert_refused(
            ("checkpoint", "export", run, "--output", self.directory / "model.onnx"),
            "complete checkpoint")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
