"""The folder that `lockstep checkpoint export --layout triton` writes is what Triton Inference
Server loads.

Usage: triton_config_test.py LOCKSTEP. tritonclient has the protobuf message that the server parses
config.pbtxt with; onnxruntime is the backend that the folder names. Exits with 77 where no Python
has both.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
PEERS = ("onnxruntime", "tritonclient")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from python_with import HOW, python_with  # noqa: E402

if any(importlib.util.find_spec(peer) is None for peer in PEERS):
    python = python_with(PEERS)
    if python is None:
        print(f"skipped: no Python here has onnxruntime and tritonclient. {HOW}")
        sys.exit(SKIPPED)
    os.execv(python, [python, *sys.argv])

import numpy  # noqa: E402
import onnxruntime  # noqa: E402
from google.protobuf import text_format  # noqa: E402
from tritonclient.grpc import model_config_pb2  # noqa: E402
from tritonclient.utils import np_to_triton_dtype, triton_to_np_dtype  # noqa: E402

LOCKSTEP = sys.argv[1]
ROOT = pathlib.Path(__file__).resolve().parents[2]
IRIS = f"csv:{ROOT}/apps/examples/iris/train.csv"
ONNX_TYPES = {
    "tensor(float)": "TYPE_FP32",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(int32)": "TYPE_INT32"
}


def lockstep(*arguments):
    result = subprocess.run([LOCKSTEP, *map(str, arguments)], capture_output=True, text=True)
    if result.returncode != 0:
        raise AssertionError(f"lockstep {' '.join(map(str, arguments))}: {result.stderr}")


def numpy_type(value):
    """The NumPy type of an input, by tritonclient's names: TYPE_FP32 of the configuration is FP32
    of a request."""
    return triton_to_np_dtype(model_config_pb2.DataType.Name(value.data_type).removeprefix("TYPE_"))


class Repository(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def export(self, name, data, *options, model):
        """Trains a step, exports to models/NAME, and returns the parsed configuration and a session
        of the model."""
        run, folder = self.directory / "runs" / name, self.directory / "models" / name
        lockstep("train", "--quiet", "--model", model, "--data", data, "--steps", 1,
                 "--checkpoint-dir", run)
        lockstep("checkpoint", "export", run, "--layout", "triton", "--output", folder, *options)
        self.assertLessEqual({path.name
                              for path in folder.iterdir()}, {"1", "config.pbtxt", "labels.txt"})
        config = text_format.Parse((folder / "config.pbtxt").read_text(),
                                   model_config_pb2.ModelConfig())
        return config, onnxruntime.InferenceSession(folder / "1/model.onnx",
                                                    providers=["CPUExecutionProvider"])

    def assert_same_values(self, values, model_values, max_batch_size):
        """The server refuses a configuration whose names, types or extents are not those of the
        model."""
        self.assertEqual([value.name for value in values], [value.name for value in model_values])
        for value, expected in zip(values, model_values):
            self.assertEqual(model_config_pb2.DataType.Name(value.data_type),
                             ONNX_TYPES[expected.type])
            self.assertGreater(max_batch_size, 0)
            self.assertIsInstance(expected.shape[0], str, "the first axis is free")
            extents = list(value.reshape.shape) if value.HasField("reshape") else list(value.dims)
            self.assertEqual(extents, [
                -1 if isinstance(extent, str) else extent for extent in expected.shape[1:]
            ])

    def check(self, name, config, session):
        self.assertEqual((config.name, config.backend), (name, "onnxruntime"))
        self.assertTrue(config.HasField("dynamic_batching"))
        self.assert_same_values(config.input, session.get_inputs(), config.max_batch_size)
        self.assert_same_values(config.output, session.get_outputs(), config.max_batch_size)
        # What a client would send for the largest batch.
        feeds = {
            value.name: numpy.ones([config.max_batch_size, *value.dims], numpy_type(value))
            for value in config.input
        }
        for value, result in zip(config.output, session.run(None, feeds)):
            self.assertEqual(result.shape, (config.max_batch_size, *value.dims))
            self.assertEqual("TYPE_" + np_to_triton_dtype(result.dtype),
                             model_config_pb2.DataType.Name(value.data_type))

    def test_table_has_labels(self):
        config, session = self.export("iris", IRIS, "--with-preprocessing", model="mlp:10")
        self.check("iris", config, session)
        self.assertEqual(config.output[0].label_filename, "labels.txt")
        labels = (self.directory / "models/iris/labels.txt").read_text().splitlines()
        self.assertEqual(labels, ["setosa", "versicolor", "virginica"])

    def test_images_accept_pixels_or_numbers(self):
        data = "synthetic-images:32x32x3,10,64"
        config, session = self.export("numbers", data, model="cnn")
        self.check("numbers", config, session)
        self.assertEqual((list(config.input[0].dims), numpy_type(config.input[0])),
                         ([3, 32, 32], numpy.float32))
        config, session = self.export("pixels", data, "--with-preprocessing", model="cnn")
        self.check("pixels", config, session)
        self.assertEqual(numpy_type(config.input[0]), numpy.uint8)

    def test_texts_have_an_input_for_each_array(self):
        mails = self.directory / "mails.csv"
        mails.write_text("body,topic\n" + "cats purr,pets\nstocks rise,money\n" * 20)
        config, session = self.export(
            "topics", f"text:{mails}:column=body,label=topic,tokenizer=bytes,length=16",
            model="minilm:1x16")
        self.check("topics", config, session)
        self.assertEqual({numpy_type(value) for value in config.input}, {numpy.int32})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
