"""Implementation of scripts/check_onnx: trains, exports, compares and measures; see
scripts/check_onnx for the options."""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import numpy
import onnx
import onnxruntime

import check_onnx_data
from bench_tools import LOCKSTEP, physical_cores
from check_onnx_tables import MAX_DROP, TIMED, print_tables, problems

EVALUATED = 250  # samples of a batch for outputs
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")


@dataclasses.dataclass
class Work:
    """A network, its data and its training; `speed`: batch and steps that compare the training of
    the imported network."""

    model: str
    data: str
    batch: int
    steps: int
    rate: float = 1e-3
    speed: tuple = (32, 40)


WORKS = [Work("linear", "fashion-mnist", 64, 1000),
         Work("mlp", "fashion-mnist", 64, 2000),
         Work("cnn", "fashion-mnist", 64, 2500),
         Work("lstm", "fashion-mnist", 64, 600),
         Work("fast_cifar", "cifar10", 64, 2400, 2e-3, (32, 16)),
         Work("vit:4x128", "cifar10", 64, 800),
         Work("mobilenet_v2", "cifar10", 64, 1200, 2e-3, (16, 12)),
         Work("resnet18", "cifar10", 64, 800, 1e-3, (16, 8)),
         Work("resnet50", "cifar10", 32, 700, 1e-3, (8, 8)),
         Work("wide_deep", "people", 50, 800),
         Work("minilm:2x64", "sentences", 50, 300),
         Work("lstm:1x64", "sentences", 50, 400),
         Work("gpt:2x64", "text", 32, 1000),
         Work("seq2seq:1x64", "numbers", 50, 1500, 5e-3),
         Work("caption:64", "shapes", 32, 600, 3e-3)]


def say(message):
    print(f"scripts/check_onnx: {message}", file=sys.stderr, flush=True)


class Failed(Exception):
    pass


def lockstep(options, *arguments, core=None):
    """The output of the program, run on one core if it is given. Raises its error."""
    environment = dict(os.environ, OMP_NUM_THREADS="1") if core is not None else None
    result = subprocess.run([options.program, *map(str, arguments)], capture_output=True, text=True,
                            env=environment, preexec_fn=(lambda: os.sched_setaffinity(0, [core]))
                            if core is not None else None)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if "error: " in line]
        raise Failed(errors[0] if errors else
                     f"exit status {result.returncode} of lockstep {arguments[0]}: {result.stderr}")
    return result.stdout


def has(options, *words):
    """Whether the program has an option or a command."""
    result = subprocess.run([options.program, *words[:-1], "--help"], capture_output=True,
                            text=True)
    return result.returncode == 0 and words[-1] in result.stdout


def session_of(path):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def feeds_of(session, inputs):
    """The arrays that a model reads, as docs/export.md describes them: normalized images, channels
    first."""
    metadata = session.get_modelmeta().custom_metadata_map
    feeds = {}
    for entry in session.get_inputs():
        values = inputs[entry.name]
        if values.dtype == numpy.uint8 and entry.type == "tensor(float)":
            pixels = json.loads(metadata["lockstep.pixels"])
            mean, deviation = (numpy.array(pixels.get(name, unit), "float32")
                               for name, unit in (("mean", 0), ("deviation", 1)))
            values = (values.astype("float32") / numpy.float32(pixels["divisor"]) -
                      mean) / deviation
        feeds[entry.name] = numpy.ascontiguousarray(values.transpose(
            0, 3, 1, 2)) if values.ndim == 4 else values
    return feeds


def first(inputs, start, end):
    return {name: values[start:end] for name, values in inputs.items()}


def outputs_of(path, inputs):
    """The first output for all samples, [N, C] or [N, T, C]."""
    session = session_of(path)
    samples = len(next(iter(inputs.values())))
    return numpy.concatenate([
        session.run(None, feeds_of(session, first(inputs, start, start + EVALUATED)))[0]
        for start in range(0, samples, EVALUATED)
    ])


def accuracy(outputs, labels):
    """In percent, of the samples or positions that have a label."""
    return 100 * (outputs.argmax(-1) == labels)[labels >= 0].mean()


def difference(outputs, lines):
    """The largest difference from the lines of `predict`, and the number of different classes.
    Positions have only probabilities."""
    records = [json.loads(line) for line in lines]
    if outputs.ndim == 2:
        expected = numpy.array([record["logits"] for record in records], "float32")
        actual, classes = outputs, expected.argmax(1)
    else:
        expected = numpy.array([record["probability"] for record in records], "float32")
        powers = numpy.exp(outputs - outputs.max(-1, keepdims=True))
        actual, classes = (powers / powers.sum(
            -1, keepdims=True)).max(-1), numpy.array([record["predicted"] for record in records])
    if actual.shape != expected.shape:
        raise Failed(
            f"expected the same samples, got outputs {list(actual.shape)} and predictions "
            f"{list(expected.shape)}"
        )
    return float(abs(actual - expected).max() / max(1,
                                                    abs(expected).max())), int((outputs.argmax(-1)
                                                                                != classes).sum())


def train(options, work, data, run):
    """A checkpoint of the network, or that of an earlier call with the same training."""
    command = [
        "train", "--model", work.model, "--data", data.train, "--global-batch", work.batch,
        "--steps",
        max(1, round(work.steps * options.budget)), "--epochs", 1000, "--learning-rate", work.rate,
        "--lr-schedule", "cosine", "--checkpoint-dir", run, "--keep", 1, "--json", *data.features
    ]
    record = run.with_suffix(".json")
    written = json.dumps([str(word) for word in command])
    if run.exists() and record.exists() and record.read_text() == written:
        return
    shutil.rmtree(run, ignore_errors=True)
    lockstep(options, *command)
    record.write_text(written)


def check_file(path):
    try:
        onnx.checker.check_model(onnx.load(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise Failed(f"{path}: onnx.checker: {error}") from error


def export(options, run, output, *more):
    started = time.perf_counter()
    lockstep(options, "checkpoint", "export", run, "--output", output, *more)
    return time.perf_counter() - started


def images_per_second(paths, inputs, options, core):
    """Of models on one core, alternating: medians."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [core])
    sessions = [session_of(path) for path in paths]
    feeds = [feeds_of(session, first(inputs, 0, TIMED)) for session in sessions]
    rates = [[] for _ in paths]
    for number in range(options.rounds + 1):
        for session, feed, measured in zip(sessions, feeds, rates):
            runs, started = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - started) < options.seconds or runs == 0:
                session.run(None, feed)
                runs += 1
            if number > 0:  # the first is a warm-up
                measured.append(runs * TIMED / elapsed)
    os.sched_setaffinity(0, before)
    return [statistics.median(measured) for measured in rates]


def compare_training(options, work, data, run, model, core, row):
    """The network of the checkpoint and that of the ONNX file, trained on with the same samples:
    losses and speed."""
    batch, steps = work.speed
    steps = max(4, round(steps * min(1, options.budget)))
    common = [
        "--data", data.train, "--global-batch", batch, "--steps", steps, "--epochs", 1000,
        "--optimizer", "sgd", "--learning-rate", 1e-3, "--devices", "cpu:0", "--json",
        "--log-every", 1, *data.features
    ]
    losses, rates = {}, {"ours": [], "imported": []}
    for _ in range(options.rounds):
        for name, source in (("ours", ["--model", work.model, "--init-from",
                                       run]), ("imported", ["--model", model])):
            events = [
                json.loads(line) for line in lockstep(options, "train", "--checkpoint-dir", "none",
                                                      *source, *common, core=core).splitlines()
            ]
            trained = [event for event in events if event["event"] == "step"]
            losses[name] = numpy.array([event["loss"] for event in trained])
            rates[name].append(
                statistics.median(event["samples_per_second"] for event in trained[2:]))
    row["losses"] = float(
        abs(losses["imported"] - losses["ours"]).max() / max(1, losses["ours"].max()))
    row["trained"] = {name: statistics.median(measured) for name, measured in rates.items()}


def quantize(options, data, run, float32, int8, core, row):
    calibration = ":".join(
        data.train.split(":")[:2]) if data.train.startswith("text:") else data.train
    lockstep(options, "quantize", "--checkpoint", run, "--data", calibration, "--validation-data",
             data.test, "--max-drop", MAX_DROP, "--output", int8)
    check_file(int8)
    row["int8_bytes"] = int8.stat().st_size
    row["int8_accuracy"] = accuracy(outputs_of(int8, data.inputs), data.labels)
    row["rates"] = dict(
        zip(("float32", "int8"), images_per_second([float32, int8], data.inputs, options, core)))


def attempt(row, name, step, *arguments):
    """Runs a step that a network may not support; the row then has the reason."""
    try:
        step(*arguments)
    except Failed as error:
        row[f"no_{name}"] = str(error).removeprefix("lockstep: error: ")
        say(f"  no {name}: {row[f'no_{name}']}")


def check(options, work, data, core):
    """Trains and exports a network; the row of the tables."""
    folder = options.work / (work.model.replace(":", "-") + "-" + work.data)
    folder.mkdir(parents=True, exist_ok=True)
    run = folder / "run"
    row = {"model": work.model, "data": work.data}
    say(f"{work.model}, {work.data}")
    train(options, work, data, run)
    float32, kept = folder / "float32.onnx", folder / "kept.onnx"
    row["export_seconds"] = statistics.median(export(options, run, float32) for _ in range(3))
    row["bytes"] = float32.stat().st_size
    check_file(float32)
    lockstep(options, "predict", "--checkpoint", run, "--data", data.samples, "--output",
             folder / "predicted.jsonl", "--quiet",
             *(["--outputs", "logits"] if data.labels.ndim == 1 else []))
    outputs = outputs_of(float32, data.inputs)
    row["positions"] = outputs.ndim == 3
    row["difference"], row["changed"] = difference(outputs[:check_onnx_data.SAMPLES],
                                                   (folder /
                                                    "predicted.jsonl").read_text().splitlines())
    row["accuracy"] = accuracy(outputs, data.labels)
    if options.has_float16:
        export(options, run, folder / "float16.onnx", "--weights", "float16")
        row["float16_bytes"] = (folder / "float16.onnx").stat().st_size
        row["float16_accuracy"] = accuracy(outputs_of(folder / "float16.onnx", data.inputs),
                                           data.labels)
    if options.has_int8:
        attempt(row, "int8", quantize, options, data, run, float32, folder / "int8.onnx", core, row)
    if not options.no_training:
        export(options, run, kept, "--no-fold")
        attempt(row, "import", compare_training, options, work, data, run, kept, core, row)
    return row


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/check_onnx", add_help=False)
    parser.add_argument("--only", action="append", choices=[work.model for work in WORKS])
    parser.add_argument("--budget", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--test-images", type=int)
    parser.add_argument("--no-int8", action="store_true")
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--program", default=str(LOCKSTEP))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/onnx-check"))
    parser.add_argument("--cifar10", type=pathlib.Path,
                        default=os.environ.get("LOCKSTEP_BENCH_CIFAR10"))
    options = parser.parse_args()
    if options.budget <= 0 or options.rounds < 1 or options.seconds < 0:
        parser.error("expected --budget above 0, --rounds from 1 on and --seconds from 0 on")
    if options.test_images is not None and options.test_images < check_onnx_data.SAMPLES:
        parser.error(f"expected --test-images from {check_onnx_data.SAMPLES} on")
    options.program, options.work = os.path.abspath(options.program), options.work.resolve()
    return options


def main():
    options = arguments()
    options.has_float16 = has(options, "checkpoint", "export", "--weights")
    options.has_int8 = not options.no_int8 and has(options, "quantize", "--calibration")
    if not options.has_int8 and not options.no_int8:
        sys.exit(
            "scripts/check_onnx: error: expected a program with the command quantize; --no-int8 "
            "checks without it"
        )
    work = options.work / "data"
    work.mkdir(parents=True, exist_ok=True)
    sources = {
        "fashion-mnist": lambda: check_onnx_data.of_idx(
            FASHION_MNIST, work / "fashion-mnist-samples", options.test_images),
        "cifar10": lambda: check_onnx_data.cifar10(options.cifar10, work, options.test_images),
        "people": lambda: check_onnx_data.people(work),
        "sentences": lambda: check_onnx_data.sentences(work),
        "text": lambda: check_onnx_data.text(work),
        "numbers": lambda: check_onnx_data.numbers(work),
        "shapes": lambda: check_onnx_data.shapes(work)
    }
    missing = {
        "fashion-mnist": not FASHION_MNIST.exists()
        and f"{FASHION_MNIST} does not exist (Debian: dataset-fashion-mnist)",
        "cifar10": not (options.cifar10 and list(options.cifar10.glob("test-*.tfrecord")))
        and "expected test-*.tfrecord in the directory of --cifar10 or LOCKSTEP_BENCH_CIFAR10"
    }
    [core] = physical_cores(1)
    data, rows, failed = {}, [], []
    for one in WORKS:
        if options.only and one.model not in options.only:
            continue
        if missing.get(one.data):
            say(f"{one.model} is skipped: {missing[one.data]}")
            continue
        try:
            data[one.data] = data.get(one.data) or sources[one.data]()
            row = check(options, one, data[one.data], core)
        except Failed as error:
            failed.append(f"{one.model}: {error}")
            continue
        rows.append(row)
        failed += [f"{one.model}: {problem}" for problem in problems(row)]
        (options.work / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    if rows:
        print_tables(rows)
    for problem in failed:
        say(f"error: {problem}")
    sys.exit(bool(failed) or not rows)


if __name__ == "__main__":
    main()
