"""The part of scripts/bench with transformers and LSTM, against the same networks in PyTorch."""

import collections
import random
import sys
import tempfile

from bench_tools import LOCKSTEP, ROOT, Run, compare, on_core, physical_cores, title

# An LSTM has floats as its input, `vocabulary` at each position.
Work = collections.namedtuple("Work", "model positions vocabulary batch steps precision")
WORKS = [Work("gpt:4x128", 64, 96, 32, 20, "float32"), Work("gpt:4x128", 64, 96, 32, 20, "bfloat16"),
         Work("gpt:6x384", 256, 8000, 8, 5, "float32"), Work("gpt:6x384", 256, 8000, 8, 5, "bfloat16"),
         Work("lstm:2x256", 64, 256, 64, 10, "float32")]


def write_text(path, work):
    """Random characters, each of the vocabulary at least once, for the steps of an epoch."""
    characters = [chr(0x4E00 + i) for i in range(work.vocabulary)]
    generator = random.Random(1)
    text = characters + generator.choices(characters, k=work.steps * work.batch * work.positions - work.vocabulary)
    generator.shuffle(text)
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(text))


def measure_sequences(options, result):
    """One core; PyTorch eagerly or compiled, whichever is faster."""
    [core] = physical_cores(1)
    result["sequences"] = []
    title("PyTorch")
    for work in WORKS:
        with tempfile.TemporaryDirectory() as directory:
            data = f"synthetic:{work.positions}x{work.vocabulary}x1:10:{work.steps * work.batch}"
            if work.model.startswith("gpt"):
                write_text(f"{directory}/text.txt", work)
                data = f"text:{directory}/text.txt:tokenizer=chars,length={work.positions}"
            train = [str(LOCKSTEP), "train", "--model", work.model, "--data", data, "--devices", "cpu:0",
                     "--global-batch", str(work.batch), "--epochs", str(options.epochs), "--optimizer", "adamw",
                     "--learning-rate", "0.001", "--precision", work.precision, "--log-format", "json"]
            other = [sys.executable, ROOT / "scripts" / "bench_sequences_torch.py", *work]
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(Run(train, [core]).finish().rate() * work.positions)
                theirs.append(on_core(other, core))
        result["sequences"].append(work._asdict() | {"lockstep": ours, "torch": theirs})
        compare(f"tokens per second, {work.model}, {work.precision}", ours, [each["tokens_per_second"] for each in theirs], 1, 0,
                f": {theirs[0]['setting']}")
