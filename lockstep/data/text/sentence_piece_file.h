// Models of SentencePiece: FILE.model.
#pragma once

#include <memory>
#include <string_view>

#include "lockstep/data/text/tokenizer.h"

namespace lockstep::inline v0::data {

/// The tokenizer of a serialized sentencepiece.ModelProto, unigram or BPE. Throws
/// std::invalid_argument with the reason for damage and for what is not supported.
std::shared_ptr<const Tokenizer> parse_sentence_piece(std::string_view bytes);

}  // namespace lockstep::inline v0::data
