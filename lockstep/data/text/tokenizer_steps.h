// The normalizer and the pre-tokenizer of tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/data/text/unicode/text_normalizer.h"
#include "lockstep/data/text/unicode/word_splitter.h"

namespace lockstep::inline v0::data {

/// Reads a "normalizer", which may be null. Throws std::invalid_argument that names one that is not
/// supported.
TextNormalizer read_text_normalizer(const nlohmann::json& settings);

/// A "pre_tokenizer".
struct PreTokenizer {
  WordSplitter splitter = {};  ///< where it splits
  bool is_byte_level =
      false;  ///< whether its last step is "ByteLevel", which writes bytes as letters
};
/// Reads a "pre_tokenizer", which may be null. Throws std::invalid_argument that names one that is
/// not supported.
PreTokenizer read_pre_tokenizer(const nlohmann::json& settings);

}  // namespace lockstep::inline v0::data
