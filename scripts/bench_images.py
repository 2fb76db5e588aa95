"""The part of scripts/bench that makes batches of JPEG images: against tf.data, and a plain loop
over libjpeg-turbo."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess

from bench_tools import BUILD, ROOT, fail, physical_cores, row, title

IMAGES = BUILD / "tests" / "bench" / "lockstep_bench_image_records"
WRITER = BUILD / "tests" / "bench" / "lockstep_bench_jpeg_records"
KEPT = ROOT / "build" / "bench-images"
SECONDS = 1.0
RECIPES = {"cifar10": "cifar10-train", "imagenet": "imagenet-train"}


def bound(cores):
    return {"check": True, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL,
            "preexec_fn": lambda: os.sched_setaffinity(0, cores)}


def images_of(work):
    """The directory of the TFRecord files, which are generated if the user names none."""
    named = os.environ.get("LOCKSTEP_BENCH_CIFAR10") if work == "cifar10" else None
    if named:
        if not any(pathlib.Path(named).glob("train-*.tfrecord")):
            fail(
                f"LOCKSTEP_BENCH_CIFAR10: expected a directory with train-*.tfrecord, got {named}, "
                "which has none"
            )
        return named
    sizes = {"cifar10": (32, 32, 50_000, 10), "imagenet": (375, 500, 1024, 4)}
    height, width, records, files = sizes[work]
    subprocess.run([
        str(WRITER),
        str(KEPT / work), "--height",
        str(height), "--width",
        str(width), "--records",
        str(records), "--files",
        str(files), "--classes", "10"
    ], check=True)
    return str(KEPT / work)


def measured(side, work, directory, cores):
    """Images per second: of processor time with one core, of elapsed time with more."""
    report = json.loads(
        subprocess.run([
            str(IMAGES), side, directory, "--recipe", RECIPES[work], "--index-dir",
            str(KEPT / "index"), "--threads",
            str(len(cores)), "--seconds",
            str(SECONDS)
        ], **bound(cores)).stdout)
    return report["images"] / report["processor_seconds" if len(cores) == 1 else "seconds"]


def tensorflow_rates(python, work, directory, core, chosen=()):
    """For each setting of tf.data: images per second of the process's processor time."""
    command = [
        python,
        str(ROOT / "scripts" / "bench_tensorflow_images.py"), work, directory,
        str(SECONDS), *chosen
    ]
    return json.loads(subprocess.run(command, **bound([core])).stdout)


def measure_images(options, result):
    """Files in the page cache, shuffled on our side; tf.data if LOCKSTEP_TENSORFLOW_PYTHON has it,
    in file order."""
    cores = physical_cores(2)
    shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True)
    python = os.environ.get("LOCKSTEP_TENSORFLOW_PYTHON")
    result["images"] = {}
    try:
        for work in RECIPES:
            directory = images_of(work)
            result["images"][work] = measure_work(options, python, work, directory, cores) | {
                "directory": directory
            }
    finally:
        shutil.rmtree(KEPT, ignore_errors=True)
    report(result["images"])


def measure_work(options, python, work, directory, cores):
    sides = ("plain", "floats", "pixels")
    measured("floats", work, directory, cores)  # reads the files once, and writes their index
    setting, tried = None, None
    if python:
        tried = tensorflow_rates(python, work, directory, cores[0])
        setting = max(tried["rates"], key=tried["rates"].get)
        print(f"{work}: TensorFlow {tried['version']}; the fastest of its settings: {setting}",
              flush=True)
    one, two, theirs = [], [], []
    for turn in range(options.rounds):
        order = sides if turn % 2 == 0 else sides[::-1]
        one.append({side: measured(side, work, directory, cores[:1]) for side in order})
        two.append({side: measured(side, work, directory, cores) for side in order})
        if setting:
            theirs.append(
                tensorflow_rates(python, work, directory, cores[0], [setting])["rates"][setting])
    return {"one_core": one, "two_cores": two, "tensorflow": theirs, "tensorflow_tried": tried,
            "tensorflow_setting": setting}


def compare(name, values, others):
    ratio = statistics.median(value / other for value, other in zip(values, others))
    row(name, f"{statistics.median(values):,.0f}", f"{statistics.median(others):,.0f}",
        f"{ratio:.2f} x",
        f"fastest {max(values):,.0f} and {max(others):,.0f}: {max(values) / max(others):.2f} x")


def report(works):
    names = {"cifar10": "32x32", "imagenet": "500x375 to 224"}
    title("tf.data")
    for work, each in works.items():
        floats = [rates["floats"] for rates in each["one_core"]]
        if each["tensorflow"]:
            compare(f"images per second, {names[work]}, one core", floats, each["tensorflow"])
        else:
            row(f"images per second, {names[work]}, one core", f"{statistics.median(floats):,.0f}",
                "", "")
    for count, key in (("one core", "one_core"), ("two cores", "two_cores")):
        title("plain loop")
        for work, each in works.items():
            for side in ("floats", "pixels"):
                compare(f"{names[work]}, {count}, {side}", [rates[side] for rates in each[key]],
                        [rates["plain"] for rates in each[key]])
