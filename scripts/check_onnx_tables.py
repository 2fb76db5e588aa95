"""The tables and the limits of scripts/check_onnx."""

import datetime

import onnx
import onnxruntime

from check_onnx_data import SAMPLES

TOLERANCE = 1e-4       # between onnxruntime's outputs and ours, relative to the largest, or 1
LOSS_TOLERANCE = 1e-5  # between losses of an imported network and of ours, relative
MAX_DROP = 0.5         # drop of the accuracy in int8, in points
TIMED = 32             # samples of a batch for times


def problems(row):
    """What exceeds a limit; times and sizes are only reported."""
    found = []
    if row["difference"] > TOLERANCE:
        found.append(f"a difference of {row['difference']:.1e}, expected at most {TOLERANCE}")
    if row["changed"]:
        found.append(f"{row['changed']} other classes than `lockstep predict`")
    if "int8_accuracy" in row and row["accuracy"] - row["int8_accuracy"] > MAX_DROP:
        found.append(
            f"{row['accuracy'] - row['int8_accuracy']:.2f} points lost in int8, expected at most "
            f"{MAX_DROP}"
        )
    if "losses" in row and row["losses"] > LOSS_TOLERANCE:
        found.append(
            f"losses of the imported network that differ by {row['losses']:.1e}, expected at most "
            f"{LOSS_TOLERANCE}"
        )
    return found


def markdown(head, rows):
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for cells in rows:
        print("| " + " | ".join(cells) + " |")


def megabytes(row, name):
    return f"{row[name] / 1e6:.3g}" if name in row else "–"


def accuracies(row):
    cells = [f"`{row['model']}`", row["data"], f"{row['accuracy']:.2f} %"]
    cells += [
        f"{row[name]:.2f} %" if name in row else "–"
        for name in ("float16_accuracy", "int8_accuracy")
    ]
    if "rates" not in row:
        return cells + ["–"] * 4
    float32, int8 = row["rates"]["float32"], row["rates"]["int8"]
    return cells + [
        f"{row['int8_bytes'] / row['bytes']:.3f}", f"{float32:,.0f}", f"{int8:,.0f}",
        f"{int8 / float32:.2f} x"
    ]


def print_tables(rows):
    print(
        f"\nonnx {onnx.__version__}, onnxruntime {onnxruntime.__version__}, "
        f"{datetime.date.today()}; {SAMPLES:,} samples; differences are relative to the largest "
        "output (or 1); accuracies on the test samples."
    )
    markdown([
        "network", "data", "`onnx.checker`", "difference", "other classes", "export, s",
        "float32, MB", "float16", "int8"
    ], [[
        f"`{row['model']}`", row["data"], "ok", f"{row['difference']:.1e}" +
        (" ¹" if row["positions"] else ""),
        str(row["changed"]), f"{row['export_seconds']:.2f}",
        megabytes(row, "bytes"),
        megabytes(row, "float16_bytes"),
        megabytes(row, "int8_bytes")
    ] for row in rows])
    if any(row["positions"] for row in rows):
        print("\n¹ of the probabilities of the predicted tokens")
    if any("float16_accuracy" in row or "rates" in row for row in rows):
        markdown([
            "network", "data", "float32", "float16", "int8", "size of int8", "float32, samples/s ²",
            "int8", "ratio"
        ], [accuracies(row) for row in rows])
        print(f"\n² onnxruntime on one core, batches of {TIMED}")
    trained = [row for row in rows if "trained" in row]
    if trained:
        markdown(["imported network", "data", "losses", "ours, samples/s ³", "imported", "ratio"],
                 [[
                     f"`{row['model']}`", row["data"], f"{row['losses']:.1e}",
                     *(f"{row['trained'][name]:,.1f}" for name in ("ours", "imported")),
                     f"{row['trained']['imported'] / row['trained']['ours']:.2f} x"
                 ] for row in trained])
        print("\n³ training on one core")
    for row in rows:
        for name in ("no_int8", "no_import"):
            if name in row:
                print(f"\n`{row['model']}`, {name.replace('_', ' ')}: {row[name]}")
