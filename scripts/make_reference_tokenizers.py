"""Two tokenizer.json, and what the tokenizers library makes of hostile lines with each of several
normalizers and pre-tokenizers in them.

Usage: make_reference_tokenizers.py DIRECTORY
"""

import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

TEXT = "/usr/share/common-licenses/GPL-3"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# The regular expressions of pre-tokenizers, by a model that has each.
PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
              rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{REST}",
    "qwen2": rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
             rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{REST}",
    "bailing": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
               r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "gpt4o": rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?"
             rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?"
             rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{REST}",
    "tekken": rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+"
              rf"|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*"
              rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{REST}",
    "three_digits": r"\p{N}{1,3}",
    "ideographs": "[一-龥぀-ゟ゠-ヿ]+",
    "deepseek3": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
                 "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|" + REST,
    "digits": r"\d{2,}|\S",
}
LINES = [
    "We'll  go, 42x!? \n\nno ", "'T's I'LL don'\u017f 'VEry it'S", "a\r\n\r\nb \r c\t\td   e",
    "12345 1,234.5 \u00bd\u00b2\u2167 \u0661\u0662\u0663\u0664 x86_64",
    "foo_bar::baz(qux)->[0] /* \u2264 */ $+<=>^|~`", "//path/to\n/x /\n/",
    "HTTPServer iPhone \u01c5ungla \u02b0a \u00aa \u24b6\u24d0 \U0001f130",
    "caf\u00e9 cafe\u0301 \u212b \u0344 a\u0327\u0301 a\u0301\u0327 \u1e9b\u0323",
    "\ufb01nal \u210c \uff21\uff22 \u2460 \u33a5 \ufdfa \u0130I\u0131 stra\u00dfe \u1e9e",
    "\u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u0391\u0399 \u0430\u0411\u0419",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u09cb \u0bca\u0b95 \u0f73 \u0c04",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u65e5\u672c\u8a9e\u30ab\u3099 \uf900 \ud55c\uae00 "
    "\u1112\u1161\u11ab", "\u0645\u0631\u062d\u0628\u0627 \u0651\u064e\u0628 \u05e9\u05c1",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f \U00010400",
    "a\u00a0b\u3000c\u2028d\u0085e\u180ef\u200bg\u202fh\ufeffi", "\x01\x1f\x7f \ufffd \ue000 "
    "\u0378 \U0010ffff", "<s>a</s> <s> b <mask>  c\u00e9 <K\u00e9> <Ke\u0301>", "     ", "",
    " ", "\n", "'", "a" * 200 + " " * 50 + "\n" + "\u0301" * 30
]


def split(pattern, behavior="Isolated", invert=False):
    return {
        "type": "Split",
        "pattern": pattern,
        "behavior": behavior,
        "invert": invert
    }


def regex(name, *options):
    return split({"Regex": PATTERNS[name]}, *options)


def sequence(*steps):
    return {
        "type": "Sequence",
        "pretokenizers": list(steps)
    }


def byte_level(use_regex=False, add_prefix_space=False):
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex
    }


DIGITS = [{"type": "Digits", "individual_digits": individual} for individual in (False, True)]
GPT2 = byte_level(True)
BERT = {"type": "BertPreTokenizer"}
ALL_FORMS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")
NORMALIZERS = [None, {"type": "Sequence", "normalizers": []}] + [
    {"type": name} for name in ALL_FORMS] + [
        {"type": "Sequence", "normalizers": [{"type": name} for name in names]}
        for names in (("NFKD", "StripAccents", "Lowercase"), ("Lowercase", "NFC"))]
BERT_NORMALIZERS = [
    {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": apart,
     "strip_accents": strip, "lowercase": lower}
    for clean, apart, strip, lower in ((True, True, None, True), (True, False, None, False),
                                       (False, True, True, False), (True, True, False, True))]
SPLITS = [regex(name) for name in PATTERNS]
PRE_TOKENIZERS = [GPT2, byte_level(True, True), byte_level()] + [
    sequence(one, byte_level()) for one in SPLITS] + [
        sequence(regex("llama3", "Removed", True), byte_level()),
        sequence(regex("three_digits"), regex("ideographs"), regex("deepseek3"), byte_level()),
        sequence(DIGITS[0], GPT2), sequence(DIGITS[1], byte_level(True, True)),
        sequence({"type": "Punctuation", "behavior": "Contiguous"}, GPT2),
        sequence(split({"String": " "}, "MergedWithPrevious"), byte_level()),
        sequence(split({"String": "  "}, "MergedWithNext"), byte_level()),
        sequence(sequence(), split({"String": "'"}, "Contiguous", True), byte_level())]
WORD_PRE_TOKENIZERS = [
    BERT, {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
    sequence({"type": "WhitespaceSplit"}, DIGITS[1]), sequence({"type": "Whitespace"}, DIGITS[0])]


def trained(model, trainer, splitter):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = splitter
    tokenizer.train_from_iterator([pathlib.Path(TEXT).read_text(), *LINES * 3], trainer)
    for text, options in (("<s>", {}), ("</s>", {"rstrip": True}), ("<mask>", {"lstrip": True}),
                          ("<K\u00e9>", {"normalized": True}), ("  ", {"normalized": True})):
        tokenizer.add_tokens([AddedToken(text, **{"normalized": False} | options)])
    return json.loads(tokenizer.to_str())


def cases(base, steps):
    for normalizer, pre_tokenizer in steps:
        file = base | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}
        tokenizer = Tokenizer.from_str(json.dumps(file))
        yield {
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "tokens": [tokenizer.encode(line, add_special_tokens=False).ids for line in LINES]
        }


def main():
    bytes_alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe = trained(models.BPE(),
                  trainers.BpeTrainer(vocab_size=420, initial_alphabet=bytes_alphabet,
                                      show_progress=False), pre_tokenizers.ByteLevel(False))
    word_piece = trained(models.WordPiece(unk_token="[UNK]"),
                         trainers.WordPieceTrainer(vocab_size=500, special_tokens=["[UNK]"],
                                                   show_progress=False),
                         pre_tokenizers.BertPreTokenizer())
    pairs = [(one, GPT2) for one in NORMALIZERS] + [(None, one) for one in PRE_TOKENIZERS]
    words = [(one, BERT) for one in NORMALIZERS + BERT_NORMALIZERS] + [
        (BERT_NORMALIZERS[0], one) for one in WORD_PRE_TOKENIZERS]
    expected = {
        "lines": LINES,
        "patterns": {
            pattern: [[piece for piece, _ in splitter.pre_tokenize_str(line)] for line in LINES]
            for pattern, splitter in ((one, pre_tokenizers.Split(Regex(one), "isolated"))
                                      for one in PATTERNS.values())
        },
        "files": [{"file": base, "cases": list(cases(base, steps))}
                  for base, steps in ((bpe, pairs), (bpe | {"model": bpe["model"] | {
                      "ignore_merges": True}}, [(None, GPT2)]), (word_piece, words))]
    }
    path = pathlib.Path(sys.argv[1]) / "tokenizers_expected.json"
    path.write_text(json.dumps(expected, ensure_ascii=True) + "\n", encoding="utf-8")


main()
