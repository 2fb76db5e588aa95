"""Plain technical English in sources, messages and documents: no word of an older vocabulary.

    language_test.py [SOURCE_DIR]
"""
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else HERE.parents[2]
SUFFIXES = {".h", ".cpp", ".cu", ".md", ".py", ".cmake", ".txt", ""}

# Word or phrase: what it is called now.
WORDS = {
    r"; got (?![>=])": "expected …, got …",
    r"[\"\[ ]needed [a-z]+[^;\n]*; ": "expected …, got …",
    r"\bwhere a wire lies\b": "between nodes, over the network",
    r"\bbeside backward\b": "overlapped with the backward pass",
    r"\bways in\b": "interfaces",
    r"\baround code that exists\b": "wrapping an existing training loop",
    r"\brooms\b": "modules",
    r"passenger": "step scalars",
    r"\bunder way\b": "in flight",
    r"\bbehind the last one\b": "one past the last",
    r"\bthe least first\b": "little-endian",
    r"\bputs up with\b": "tolerates",
    r"\bof somebody else's\b": "the user's own",
    r"\bmust needs\b": "requires",
    r"\bgoes on from\b": "resumes from",
    r"\bpretends? to\b(?! be)": "simulates",
    r"\bmend(s|ed)\b": "fix, repair",
    r"\bMeeting\b": "Barrier, Rendezvous",
    r"\bCenter\b": "Coordinator",
    r"\bVoice\b": "HostAgent",
    r"\bStranger\b": "PendingConnection",
    r"\bLent\b": "Lease",
    r"\bacquainted\b": "connect",
    r"\bkMost\w*": "kMax…",
    r"\bwhom\(\)": "target()",
    r"\bCheckpoints that stay\b": "number of checkpoints to keep",
    r"\bShare of the rate\b": "fraction of the peak",
}
# What a text must contain for each pattern to match, which is faster to find: "mend" of mend(s|ed).
LITERALS = {pattern: re.match(r"(\\b)?([\w ']*\w(?![?]))?", pattern)[2] or "" for pattern in WORDS}
# A subcommand of scripts/cluster is called mend; this file lists the words.
EXCEPT = {"scripts/cluster", "tests/structure/language_test.py"}
# What a comment may not begin with: it is a sentence about the declaration it stands on.
FRAGMENT = re.compile(r"(of|likewise|the same)\b", re.IGNORECASE)
COMMENT = re.compile(r"(?P<code>.*?)(?P<mark>///?<?|#)(?= |$) ?(?P<text>.*)")


def fragments(text, mark):
    """Line numbers of comments, or of sentences in comments, that are no sentences."""
    found = []
    continues = False  # a comment on the line before whose sentence has not ended
    for number, line in enumerate(text.splitlines(), 1):
        match = COMMENT.fullmatch(line) if mark in line else None
        if not match or not match["mark"].startswith(mark) or match["code"].count('"') % 2:
            continues = False
            continue
        alone = not match["code"].strip()
        if FRAGMENT.match(match["text"]) and not (alone and continues):
            found.append(number)
        continues = bool(match["text"]) and match["text"][-1] not in ".:;"
    return found


class Language(unittest.TestCase):
    def test_is_that_of_the_field(self):
        paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
        for folder in ("lockstep", "apps", "docs", "scripts", "third_party", "tests"):
            paths += sorted((ROOT / folder).rglob("*"))
        found = []
        for path in paths:
            name = str(path.relative_to(ROOT))
            if name in EXCEPT or path.suffix not in SUFFIXES or not path.is_file():
                continue
            if "__pycache__" in name or "/corpus/" in name:
                continue
            text = path.read_text(errors="replace")
            for pattern, better in WORDS.items():
                found += [
                    f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: {better}"
                    for match in (re.finditer(pattern, text) if LITERALS[pattern] in text else ())
                ]
        self.assertEqual([], found)

    def test_comments_are_sentences(self):
        found = []
        marks = dict.fromkeys((".h", ".cpp", ".cu", ".cuh"), "//") | {".py": "#"}
        for folder in ("lockstep", "apps", "scripts", "tests"):
            for path in sorted((ROOT / folder).rglob("*")):
                name = str(path.relative_to(ROOT))
                if mark := marks.get(path.suffix if "/corpus/" not in name else ""):
                    found += [f"{name}:{line}" for line in fragments(path.read_text(), mark)]
        self.assertEqual([], found)


if __name__ == "__main__":
    unittest.main()
