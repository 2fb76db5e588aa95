"""Models of SentencePiece, trained on a license that every Debian system has, and what the library
makes of some texts.

Usage: make_reference_sentencepiece.py DIRECTORY
"""

import json
import pathlib
import sys
import tempfile

import sentencepiece

TEXT = "/usr/share/common-licenses/GPL-3"
RULES = {"é": "e", "ß": "ss", "\u00a0": " ", "…": "...", "X": "", "\t": "  ", "ﬁn": "fin"}
CASES = [
    "The GNU General Public License", "  two  spaces  ", "", "   ", "caf\u00e9 stra\u00dfe\u2026",
    "\u00a0a\u00a0\u00a0b\tc", "aXb X", "漢字 and 漢", "the<sep>the the", "<s>control</s> <unk>",
    "\u2581already\u2581", "unlicensable, 3.14!?", "\ufb01nal \ufb01", "e\u0301"
]
MODELS = {
    "unigram": dict(model_type="unigram", vocab_size=320, user_defined_symbols=["<sep>", "the"],
                    pad_id=3),
    "bpe": dict(model_type="bpe", vocab_size=600, user_defined_symbols=["<sep>", "the"],
                byte_fallback=True),
    "bare": dict(model_type="bpe", vocab_size=200, bos_id=-1, pad_id=0, eos_id=1, unk_id=2,
                 add_dummy_prefix=False, remove_extra_whitespaces=False, split_by_whitespace=False),
}


def main():
    directory = pathlib.Path(sys.argv[1])
    rules = tempfile.NamedTemporaryFile("w", suffix=".tsv")
    for character, replaced in RULES.items():
        rules.write(
            f"{' '.join(f'{ord(c):04X}' for c in character)}\t"
            f"{' '.join(f'{ord(c):04X}' for c in replaced)}\n"
        )
    rules.flush()
    expected = {}
    for name, options in MODELS.items():
        normalization = {
            "normalization_rule_name": "identity"
        } if name == "bare" else {
            "normalization_rule_tsv": rules.name
        }
        prefix = directory / f"sentencepiece_{name}"
        sentencepiece.SentencePieceTrainer.train(input=TEXT, model_prefix=str(prefix),
                                                 character_coverage=1.0, minloglevel=2,
                                                 **normalization, **options)
        prefix.with_suffix(".vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(prefix.with_suffix(".model")))
        tokens = [model.encode(text) for text in CASES]
        expected[name] = {
            "pieces": model.get_piece_size(),
            "begin": model.bos_id(),
            "end": model.eos_id(),
            "texts": CASES,
            "tokens": tokens,
            "decoded": [model.decode(one) for one in tokens]
        }
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (directory / "sentencepiece_expected.json").write_text(text + "\n", encoding="utf-8")


main()
