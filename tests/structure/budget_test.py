"""Keeps each module within its budget of tokens, tests/structure/budget.txt. Prints both, with
lines and files.

    budget_test.py [SOURCE_DIR] [--print]

--print only prints the table. A token is a word, a number, a literal or a sign. Comments are not
counted, nor are data, documents and what CMake reads.
"""
import pathlib
import re
import sys

CPP = re.compile(
    r"""//[^\n]*|/\*.*?\*/|(R"(\w*)\(.*?\)\2"|"(?:\\.|[^"\\\n])*"|"""
    r"""'(?:\\.|[^'\\\n])+'|[A-Za-z_]\w*|[\d.][\w.']*|[^\w\s])""",
    re.DOTALL)
PYTHON = re.compile(
    r"""#[^\n]*|(\""".*?\"""|'''.*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\w+|[^\w\s])""",
    re.DOTALL)
SHELL = re.compile(r"(?<!\S)#[^\n]*|(\w+|[^\w\s])")
LANGUAGES = {
    ".h": CPP,
    ".c": CPP,
    ".cpp": CPP,
    ".cu": CPP,
    ".cuh": CPP,
    ".py": PYTHON,
    ".sh": SHELL
}
PRODUCT = ("lockstep", "apps", "python")
ADVICE = (
    "delete what the change makes unneeded, or raise the budget in the same commit and say in its "
    "message what the addition replaces, or why it can replace nothing")


def language_of(path, text):
    if path.suffix:
        return LANGUAGES.get(path.suffix)
    first = text.partition("\n")[0]
    return (PYTHON if "python" in first else SHELL) if first.startswith("#!") else None


def measure(root):
    """(files, lines, tokens) of each module: the folders of lockstep/ and apps/, what lies beside
    them, and other folders."""
    sizes = {}
    for folder in (*PRODUCT, "scripts", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in ("", *LANGUAGES) or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            language = language_of(path, text)
            if language is None:
                continue
            parts = path.relative_to(root).parent.parts
            module = "/".join(parts[:2]) if folder in ("lockstep", "apps") else folder
            files, lines, tokens = sizes.get(module, (0, 0, 0))
            count = sum(1 for match in language.finditer(text) if match[1])
            sizes[module] = files + 1, lines + text.count("\n"), tokens + count
    return sizes


def read_budgets(path):
    lines = [
        line.partition("#")[0].split() for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return {name: int(tokens) for name, tokens in filter(None, lines)}


def table(sizes, budgets):
    row = "{:<22}{:>7}{:>9}{:>11}{:>11}  {}".format
    yield row("module", "files", "lines", "tokens", "budget", "")
    for module, (files, lines, tokens) in sizes.items():
        budget = budgets.get(module, 0)
        yield row(module, files, f"{lines:,}", f"{tokens:,}", f"{budget:,}",
                  "ABOVE" if tokens > budget else "")
    product = [size for module, size in sizes.items() if module.split("/")[0] in PRODUCT]
    files, lines, tokens = map(sum, zip(*product))
    yield row("product", files, f"{lines:,}", f"{tokens:,}", "", "")


def problems(sizes, budgets):
    for module, (_, _, tokens) in sizes.items():
        if module not in budgets:
            yield f"[budget.txt] expected a budget of {module}, which has {tokens} tokens"
        elif tokens > budgets[module]:
            yield (f"[{module}] expected at most {budgets[module]:,} tokens, got {tokens:,}: "
                   f"{ADVICE}")
    for module in budgets.keys() - sizes.keys():
        yield f"[budget.txt] expected budgets of modules that exist, got one of {module}"


def main(arguments):
    only_print = "--print" in arguments
    folders = [argument for argument in arguments if argument != "--print"]
    root = pathlib.Path(folders[0]) if folders else pathlib.Path(__file__).resolve().parents[2]
    path = root / "tests" / "structure" / "budget.txt"
    budgets = read_budgets(path) if path.is_file() else {}
    sizes = measure(root)
    print(*table(sizes, budgets), sep="\n")
    found = [] if only_print else list(problems(sizes, budgets))
    print(*found, sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
