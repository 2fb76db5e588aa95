"""Implementation of scripts/plot."""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def read(path):
    with sys.stdin if path == "-" else open(path) as lines:
        return [json.loads(line) for line in lines]


def column(events, name):
    """The (epochs done, value) pairs of the events that have a value of this name."""
    return zip(*[(event["position"], event[name]) for event in events if name in event]) if any(
        name in event for event in events) else ((), ())


def main():
    events = read(sys.argv[1])
    start = next((event for event in events if event["event"] == "start"), None)
    if start is None:
        sys.exit(
            f"scripts/plot: error: expected the events of a training, got {sys.argv[1]} without a "
            "start event"
        )
    for event in events:
        if "step" in event:
            event["position"] = event["step"] / start["steps_per_epoch"]
    steps = [event for event in events if event["event"] == "step"]
    epochs = [event for event in events if event["event"] == "epoch"]

    plt.rcParams.update({
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "lockstep"
    })
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, name in zip(axes, ["loss", "accuracy"]):
        axis.plot(*column(steps, name), color="#b8c4d6", linewidth=0.8, label="step")
        axis.plot(*column(epochs, name), "o-", color="#1f4e9c", label="epoch")
        axis.plot(*column(epochs, f"validation_{name}"), "s-", color="#d1572b", label="validation")
        axis.set_xlabel("epochs")
        axis.set_title(name, loc="left")
        axis.grid(axis="y", color="#e6e6e6")
    axes[0].set_ylim(bottom=0, top=1.0)
    axes[1].set_ylim(bottom=0.6, top=1.0)
    axes[1].legend(frameon=False, loc="lower right")
    world = start["world_size"]
    figure.suptitle(
        f"{start['model']} on {start['data']}: {world} replica{'s' if world > 1 else ''}, "
        f"global batch {start['global_batch']}", x=0.01, ha="left", fontsize=11)
    figure.savefig(sys.argv[2], metadata={"Date": None} if sys.argv[2].endswith(".svg") else None)


if __name__ == "__main__":
    main()
