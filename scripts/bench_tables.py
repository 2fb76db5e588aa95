"""The part of scripts/bench with tables: CSV to batches against pandas and tf.data, wide_deep
against Keras and PyTorch."""

import json
import os
import pathlib
import statistics
import sys

from bench_tools import BUILD, LOCKSTEP, ROOT, Run, compare, on_cores, physical_cores, row, title

TABLE = BUILD / "tests" / "bench" / "lockstep_bench_table"
KEPT = ROOT / "build" / "bench-table"
ROWS, NUMBERS, WORDS, BATCH = 1_000_000, 26, 13, 512
MODEL = "wide_deep:128x128,embedding=8"


def write_table(path):
    """Once: 26 numbers, 13 columns of 1,000 words and a label of two classes; about 300 MB."""
    import numpy
    import pandas
    random = numpy.random.default_rng(1)
    columns = {f"n{i}": random.normal(10 * i, 1 + i, ROWS).round(4) for i in range(NUMBERS)}
    logit = sum((columns[f"n{i}"] - 10 * i) / (1 + i) for i in range(5))
    for i in range(WORDS):
        words = numpy.array([f"c{i}_{k}" for k in range(1000)])
        columns[f"c{i}"] = words[numpy.minimum(random.exponential(150, ROWS).astype(int), 999)]
    columns["label"] = (random.random(ROWS) < 1 / (1 + numpy.exp(-logit))).astype(int)
    pandas.DataFrame(columns).to_csv(path, index=False)


def write_features(path):
    path.write_text(
        json.dumps({
            "features": [{
                "column": f"c{i}",
                "kind": "categorical",
                "output": "index"
            } for i in range(WORDS)]
        }))


def measure_tables(options, result):
    """One core. TensorFlow and Keras if LOCKSTEP_TENSORFLOW_PYTHON has them."""
    [core] = physical_cores(1)
    KEPT.mkdir(parents=True, exist_ok=True)
    table, features = KEPT / "table.csv", KEPT / "features.json"
    if not table.exists():
        write_table(table)
    write_features(features)
    tensorflow = os.environ.get("LOCKSTEP_TENSORFLOW_PYTHON")
    scripts = ROOT / "scripts"
    peers = {"PyTorch": [sys.executable, scripts / "bench_tables_torch.py", table, BATCH]}
    if tensorflow:
        peers |= {"Keras": [tensorflow, scripts / "bench_tables_keras.py", table, BATCH, "fit"],
                  "tf.data": [tensorflow, scripts / "bench_tables_keras.py", table, BATCH, "read"]}
    train = [
        str(LOCKSTEP), "train", "--checkpoint-dir", "none", "--model", MODEL, "--data",
        f"csv:{table}:label=label", "--features",
        str(features), "--devices", "cpu:0", "--global-batch",
        str(BATCH), "--epochs",
        str(options.epochs), "--optimizer", "adam", "--log-format", "json"
    ]
    read, rates, theirs = [], [], {name: [] for name in peers}
    for _ in range(options.rounds):
        read.append(
            on_cores([TABLE, table, "--label", "label", "--features", features, "--batch", BATCH],
                     [core]))
        rates.append(Run(train, [core]).finish().rate())
        for name, command in peers.items():
            theirs[name].append(on_cores(command, [core]))
    result["tables"] = {"read": read, "wide_deep": rates, "theirs": theirs}
    if tensorflow:
        title("tf.data")
        compare("thousand rows per second, CSV to batches",
                [each["samples"] / each["seconds"] for each in read],
                [each["samples_per_second"] for each in theirs["tf.data"]], 1e3, 0)
    open_rates = [each["bytes"] / each["open_seconds"] for each in read]
    row("MB/s of the file until its first batch", f"{statistics.median(open_rates) / 1e6:,.0f}", "",
        "")
    for name in ("Keras", "PyTorch"):
        if name in theirs:
            title(name)
            best = [each["samples_per_second"] for each in theirs[name]]
            compare("thousand rows per second, wide_deep", rates, best, 1e3, 1,
                    f": {theirs[name][0]['setting']}")


if __name__ == "__main__":
    write_table(pathlib.Path(sys.argv[1]))
