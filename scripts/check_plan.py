"""For scripts/check_plan: compares the plans in a folder with the logs of trainings. Prints a
table; exits with 1 if one is wrong."""

import json
import pathlib
import sys

MOST = 0.10  # maximum error relative to the measured step


def events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def measured(path, batch):
    """Seconds of a step: the reports after the first third, which is a warm-up."""
    steps = [event for event in events(path) if event["event"] == "step"]
    steps = steps[len(steps) // 3:]
    return sum(batch / event["samples_per_second"] for event in steps) / len(steps)


def main():
    folder, batch = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    rates, hosts = sys.argv[3].split(","), [int(count) for count in sys.argv[4].split(",")]
    rows, results = [], []
    for rate in rates:
        plan = {
            row["replicas"]: row
            for row in json.loads((folder / f"plan-{rate}.json").read_text())["rows"]
        }
        for count in hosts:
            seconds = measured(folder / f"run-{rate}-{count}.jsonl", batch)
            predicted = plan[count]["step_seconds"]
            results.append({
                "rate": rate,
                "hosts": count,
                "measured_seconds": seconds,
                "row": plan[count],
                "difference": predicted / seconds - 1
            })
            parts = plan[count]["breakdown"]
            rows.append([
                rate,
                str(count), f"{1e3 * predicted:.1f}", f"{1e3 * seconds:.1f}",
                f"{100 * (predicted / seconds - 1):+.1f} %",
                f"{1e3 * (parts['transfer'] + parts['communication']):.1f}",
                f"{1e3 * parts['waiting']:.1f}"
            ])
    lines = [
        "| link | hosts | predicted, ms | measured, ms | difference | of it exposed, ms | waiting, "
        "ms |",
        "|---|---|---|---|---|---|---|"
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    (folder / "results.md").write_text("\n".join(lines) + "\n")
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(lines))
    worst = max(abs(result["difference"]) for result in results)
    print(f"largest difference: {100 * worst:.1f} %")
    sys.exit(worst > MOST)


if __name__ == "__main__":
    main()
