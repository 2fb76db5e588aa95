#!/usr/bin/env python3
"""Compares the interface of the program with the files in golden/ (help, configurations, events,
states, errors on resume), and checks the table of options in docs/program.md.

golden_test.py PROGRAM [--update]

--update writes the files, whose difference is then reviewed with the change that made it.
"""

import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).parent / "golden"
DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "program.md"
# Delimiters of the part of the document that this script writes.
BEGIN, END = "<!-- written by tests/apps/golden_test.py --update -->\n", "<!-- end -->\n"
TABLE = "a,b,kind\n" + "".join(
    f"{2 * i + 1},{2 * i + 2},x\n{2 * i + 2},{2 * i + 1},y\n" for i in range(4)
)
TRAIN = [
    "train",
    "--model",
    "linear",
    "--data",
    "csv:t.csv:label=kind",
    "--global-batch",
    "4",
    "--devices",
    "cpu:0",
]
# Values that differ between machines or runs; only their type is compared.
VARIES = {"host", "parameter_hash", "resident_bytes", "cores", "lockstep_version", "hash"}
# Resumed runs with one changed option, whose error or warning is compared.
CHANGES = [
    ["--seed", "2"],
    ["--global-batch", "2"],
    ["--learning-rate", "0.1"],
    ["--lr-schedule", "cosine"],
    ["--clip-norm", "1"],
    ["--accumulate", "2"],
    ["--optimizer", "sgd"],
    ["--beta1", "0.5"],
    ["--ema", "0.9"],
    ["--freeze", "*/bias"],
    ["--group", "*/bias:lr=0.5"],
    ["--bn", "sync"],
    ["--loss-scale", "8"],
    ["--loss", "cross-entropy:label_smoothing=0.1"],
    ["--class-weights", "1,2"],
    ["--mixup", "0.2"],
    ["--no-shuffle"],
    ["--shard-policy", "data"],
    ["--recompute", "blocks"],
    ["--metrics", "auc"],
    ["--model", "mlp:3"],
    ["--data", "csv:t.csv:label=kind,drop=a"],
]


def run(program, arguments, folder):
    environment = {
        key: value
        for key, value in os.environ.items()
        if key != "COLUMNS" and not key.startswith("LOCKSTEP_")
    }
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def commands(program, path=()):
    """The names of all commands, with the help of each, which lists those below it."""
    text = run(program, [*path, "--help"], ".").stdout
    yield path, text
    for name in re.findall(r"^  ([a-z][a-z0-9-]*) ", text.partition("\nSubcommands:\n")[2], re.M):
        yield from commands(program, (*path, name))


def shape(value, key=""):
    """Replaces fractional numbers and varying values by their type."""
    if isinstance(value, dict):
        return {name: shape(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(one, key) for one in value]
    return type(value).__name__ if key in VARIES or isinstance(value, float) else value


def events(text):
    return "".join(json.dumps(shape(json.loads(line))) + "\n" for line in text.splitlines())


def option_table(program):
    """The options of train as tables, one for each group of the help."""
    groups = {}
    for option in json.loads(run(program, ["train", "--help", "--json"], ".").stdout)["options"]:
        groups.setdefault(option.get("group"), []).append(option)
    text = ""
    for group, options in groups.items():
        text += f"\n### {group}\n\n| option | default | |\n|---|---|---|\n"
        for option in options:
            name = " ".join(filter(None, [f"--{option['name']}", option.get("value")]))
            names = ", ".join(
                f"`{each}`"
                for each in [name, *(f"--{other}" for other in option.get("aliases", []))]
            )
            default = f"`{option['default']}`" if "default" in option else ""
            text += (
                f"| {names} | {default} | {option['help']} |\n".replace("|", "\\|")
                .replace("\\| ", "| ")
                .replace(" \\|", " |")
            )
    return text + "\n"


def outputs(program):
    """The name of each golden file with what it should contain."""
    for path, text in commands(program):
        yield "_".join(["help", *path]) + ".txt", text
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "t.csv").write_text(TABLE)
        for name, arguments in {"train": TRAIN, "plan": ["plan", *TRAIN[1:]]}.items():
            yield f"config_{name}.txt", run(program, [*arguments, "--print-config"], folder).stdout
        first = [
            *TRAIN,
            "--validation-data",
            "csv:t.csv",
            "--checkpoint-dir",
            "run",
            "--json",
            "--log-every",
            "1",
        ]
        yield "events.txt", events(run(program, [*first, "--epochs", "1"], folder).stdout)
        state = next(pathlib.Path(folder, "run").glob("step-*")) / "state.json"
        yield "state.txt", json.dumps(shape(json.loads(state.read_text())), indent=1) + "\n"
        resumed = ""
        for change in CHANGES:
            result = run(
                program,
                [*TRAIN, "--epochs", "1", "--checkpoint-dir", "run", *change, "--quiet"],
                folder,
            )
            resumed += f"{' '.join(change)}: {result.returncode}\n{result.stderr}\n"
        yield "resume.txt", resumed


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    differences = 0
    made = dict(outputs(program))
    head, begin, rest = DOCUMENT.read_text().partition(BEGIN)
    table, end, tail = rest.partition(END)
    made_table = option_table(program)
    if "--update" in sys.argv:
        DOCUMENT.write_text(head + begin + made_table + end + tail)
        table = made_table
    if table != made_table:
        differences += 1
        sys.stdout.writelines(
            difflib.unified_diff(
                table.splitlines(True), made_table.splitlines(True), str(DOCUMENT), "now"
            )
        )
    if "--update" in sys.argv:
        GOLDEN.mkdir(exist_ok=True)
        for file in GOLDEN.iterdir():
            if file.name not in made:
                file.unlink()
        for name, text in made.items():
            (GOLDEN / name).write_text(text)
    for name in sorted(made.keys() | {file.name for file in GOLDEN.iterdir()}):
        golden = (GOLDEN / name).read_text() if (GOLDEN / name).exists() else ""
        lines = list(
            difflib.unified_diff(
                golden.splitlines(True),
                made.get(name, "").splitlines(True),
                f"golden/{name}",
                "now",
            )
        )
        sys.stdout.writelines(lines)
        differences += bool(lines)
    if differences:
        print(
            f"{differences} of {len(made)} outputs differ from tests/apps/golden; "
            "--update accepts them"
        )
    return differences > 0


if __name__ == "__main__":
    sys.exit(main())
