// Files of tokenizers: tokenizer.json of Hugging Face, vocab.txt of BERT, models of SentencePiece.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::inline v0::data {

/// The content of the file; at most 64 MiB. Throws Error (data).
std::string read_tokenizer_file(const std::filesystem::path& file);

/// The tokenizer that a file describes: tokenizer.json with a byte-level BPE, as GPT-2's, or with
/// WordPiece, as BERT's; a model of SentencePiece; otherwise a vocabulary of WordPiece, one token
/// per line. `where` is its name. Special tokens in the text are one token each, except those of
/// SentencePiece; none is added, whatever the file's post-processor. Throws Error (data) for a
/// damaged or unsupported file.
std::shared_ptr<const Tokenizer> parse_tokenizer_file(std::string_view bytes,
                                                      const std::string& where);

}  // namespace lockstep::inline v0::data
