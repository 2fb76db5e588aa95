"""The part of scripts/bench with transformers and LSTM, against the same networks in PyTorch."""

import argparse
import collections
import itertools
import random
import statistics
import sys
import tempfile

from bench_tools import (
    LOCKSTEP,
    ROOT,
    Run,
    compare,
    floor_of_step,
    on_cores,
    physical_cores,
    row,
    spread,
    supports,
    title,
)

# An LSTM has floats as its input, `vocabulary` at each position.
Work = collections.namedtuple("Work", "model positions vocabulary batch steps precision replicas",
                              defaults=[1])
WORKS = [
    Work("gpt:4x128", 64, 96, 32, 20, "float32"),
    Work("gpt:4x128", 64, 96, 32, 20, "bfloat16"),
    Work("gpt:6x384", 256, 8000, 8, 5, "float32"),
    Work("gpt:6x384", 256, 8000, 8, 5, "bfloat16"),
    Work("lstm:2x256", 64, 256, 64, 10, "float32"),
    Work("minilm:6x384", 128, 30522, 32, 3, "float32"),
    Work("gpt:12x768", 256, 50257, 4, 3, "float32"),
    Work("gpt:12x768", 256, 50257, 8, 3, "float32", 2),
    Work("gpt:12x768", 256, 50257, 8, 3, "bfloat16", 2)
]
REPLICAS = WORKS[0]


def write_text(path, work):
    """Random characters, each of the vocabulary at least once, for the steps of an epoch."""
    surrogates = range(0xD800, 0xE000)
    codes = itertools.filterfalse(surrogates.__contains__, itertools.count(0x4E00))
    characters = [chr(code) for code in itertools.islice(codes, work.vocabulary)]
    generator = random.Random(1)
    text = characters + generator.choices(
        characters, k=work.steps * work.batch * work.positions - work.vocabulary)
    generator.shuffle(text)
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(text))


def write_words(directory, work):
    """A WordPiece vocabulary of made-up words; those that are not special."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + [f"w{i}" for i in range(work.vocabulary - 4)]
    with open(f"{directory}/vocab.txt", "w", encoding="utf-8") as file:
        file.write("\n".join(words) + "\n")
    return words[4:]


def write_sentences(directory, work):
    """A vocabulary, and a table of sentences that fill all positions, of two classes."""
    words, generator = write_words(directory, work), random.Random(1)
    with open(f"{directory}/sentences.csv", "w", encoding="utf-8") as file:
        file.write("sentence,topic\n")
        for i in range(work.steps * work.batch):
            file.write(
                f"{' '.join(generator.choices(words, k=work.positions - 2))},{'ab'[i % 2]}\n")


def data_of(directory, work):
    """Writes the data of a work; the value of --data."""
    if work.model.startswith("minilm"):
        write_sentences(directory, work)
        return (f"text:{directory}/sentences.csv:column=sentence,label=topic,"
                f"tokenizer={directory}/vocab.txt,length={work.positions}")
    tokens = work.steps * work.batch * work.positions
    if work.model.startswith("gpt") and work.vocabulary > tokens:
        with open(f"{directory}/text.txt", "w", encoding="utf-8") as file:
            file.write(" ".join(random.Random(1).choices(write_words(directory, work), k=tokens)))
        return f"text:{directory}/text.txt:tokenizer={directory}/vocab.txt,length={work.positions}"
    if work.model.startswith("gpt"):
        write_text(f"{directory}/text.txt", work)
        return f"text:{directory}/text.txt:tokenizer=chars,length={work.positions}"
    return f"synthetic:{work.positions}x{work.vocabulary}x1,10,{work.steps * work.batch}"


def train(options, work, data, batch):
    devices = ",".join(["cpu:0"] * work.replicas)
    return [
        str(LOCKSTEP), "train", "--checkpoint-dir", "none", "--model", work.model, "--data", data,
        "--devices", devices, "--global-batch",
        str(batch), "--epochs",
        str(options.epochs), "--optimizer", "adamw", "--learning-rate", "0.001", "--precision",
        work.precision, "--log-format", "json"
    ]


def measure_ranks(options, result):
    """Two ranks on two cores against two independent runs of half the batch at the same time."""
    cores, work = physical_cores(2), REPLICAS
    with tempfile.TemporaryDirectory() as directory:
        data = data_of(directory, work._replace(steps=2 * work.steps))
        mpirun = ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"]
        ranks, independent = [], []
        for _ in range(options.rounds):
            pair = [Run(train(options, work, data, work.batch), [core]) for core in cores]
            independent.append(sum(run.finish().rate() for run in pair) * work.positions)
            ranks.append(
                Run(mpirun + train(options, work, data, 2 * work.batch), cores,
                    threads=None).finish().rate() * work.positions)
    ours, other = statistics.median(ranks), statistics.median(independent)
    result["ranks"] = {"ranks": ranks, "independent": independent}
    title("2 x one")
    row(f"tokens per second, {work.model}, two ranks", f"{ours:,.0f}", f"{other:,.0f}",
        f"{ours / other:.0%}", f"ours {spread(ranks)}, two independent runs {spread(independent)}")


def measure_sequences(options, result):
    """A core for each replica; PyTorch eagerly or compiled, whichever is faster, with as many
    threads in one process. The memory is the maximum of eager PyTorch's process and of ours."""
    result["sequences"] = []
    title("PyTorch")
    for work in (each for each in WORKS if supports(each.precision)):
        name, cores = f"{work.model}, {work.precision}, {work.replicas} x", physical_cores(
            work.replicas)
        with tempfile.TemporaryDirectory() as directory:
            data = data_of(directory, work)
            command = train(options, work, data, work.batch)
            other = [sys.executable, ROOT / "scripts" / "bench_sequences_torch.py", *work]
            ours, theirs, megabytes = [], [], []
            for _ in range(options.rounds):
                run = Run(command, cores).finish()
                ours.append(run.rate() * work.positions)
                megabytes.append(run.resident_megabytes)
                theirs.append(on_cores(other, cores))
            epochs = argparse.Namespace(epochs=-(-10 //
                                                 work.steps))  # the profile leaves out 5 steps
            step = floor_of_step(train(epochs, work, data, work.batch), work.steps, cores)
        result["sequences"].append(work._asdict() | {
            "lockstep": ours,
            "megabytes": megabytes,
            "torch": theirs,
            "step": step
        })
        compare(f"tokens per second, {name}", ours, [each["tokens_per_second"] for each in theirs],
                1, 0, f": {theirs[0]['setting']}")
        floor = step["primitives_ms"] + step["others_ms"]
        row(
            f"ms of a step, {name}", f"{step['ms']:.1f}", f"{floor:.1f}",
            f"{floor / step['ms']:.0%}",
            f"the floor, of which products {step['primitives_ms']:.1f}; at the peak of a core "
            f"{step['peak_share']:.0%}"
        )
        compare(f"peak memory in MB, {name}", megabytes, [each["megabytes"] for each in theirs], 1,
                0)
    measure_ranks(options, result)
