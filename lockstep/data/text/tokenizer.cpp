#include "lockstep/data/text/tokenizer.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/input_file.h"
#include "lockstep/base/json_member.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/text/tokenizer_file.h"
#include "lockstep/data/text/unicode.h"

namespace lockstep::data {
namespace {

constexpr const char* kChars = "chars";
constexpr const char* kBytes = "bytes";

std::string hash_of(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

bool is_file(const std::string& tokenizer) { return tokenizer != kChars && tokenizer != kBytes; }

}  // namespace

void check_token(std::int32_t token, std::int64_t vocabulary_size) {
  if (token < 0 || token >= vocabulary_size)
    throw Error(ErrorCategory::input, "tokens",
                fmt::format("expected tokens from 0 to {}", vocabulary_size - 1),
                fmt::format("got {}", token));
}

CharsTokenizer::CharsTokenizer(std::string_view vocabulary) {
  for (std::size_t at = 0; at < vocabulary.size();) {
    const char32_t code = next_code_point(vocabulary, at);
    if (!codes_.empty() && code <= codes_.back())
      throw Error(ErrorCategory::data, "vocabulary", "expected characters in ascending order",
                  fmt::format("got U+{:04X} after U+{:04X}", static_cast<std::uint32_t>(code),
                              static_cast<std::uint32_t>(codes_.back())));
    codes_.push_back(code);
  }
  if (codes_.empty())
    throw Error(ErrorCategory::data, "vocabulary", "expected at least one character",
                "there is none");
  numbers_.assign(std::size_t{codes_.back()} + 1, -1);
  for (std::size_t i = 0; i < codes_.size(); ++i)
    numbers_[codes_[i]] = static_cast<std::int32_t>(i);
}

void CharacterSet::add(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t code = next_code_point(text, at);
    if (code >= has_.size()) has_.resize(code + 1);
    has_[code] = true;
  }
}

std::string CharacterSet::vocabulary() const {
  std::string vocabulary;
  for (std::size_t code = 0; code < has_.size(); ++code)
    if (has_[code]) append_utf8(static_cast<char32_t>(code), vocabulary);
  return vocabulary;
}

std::vector<std::int32_t> CharsTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t first = at;
    const char32_t code = next_code_point(text, at);
    const std::int32_t number = code < numbers_.size() ? numbers_[code] : -1;
    if (number < 0)
      throw Error(
          ErrorCategory::data, "text",
          "expected characters of the training text (tokenizer=bytes reads any text)",
          fmt::format("got U+{:04X} at offset {}", static_cast<std::uint32_t>(code), first));
    tokens.push_back(number);
  }
  return tokens;
}

std::string CharsTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    check_token(token, vocabulary_size());
    append_utf8(codes_[static_cast<std::size_t>(token)], text);
  }
  return text;
}

std::vector<std::int32_t> BytesTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens(text.size());
  std::ranges::transform(text, tokens.begin(),
                         [](char c) { return static_cast<unsigned char>(c); });
  return tokens;
}

std::string BytesTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) {
    check_token(token, vocabulary_size());
    text += static_cast<char>(token);
  }
  return text;
}

TextSchema TextSchema::of(const std::string& tokenizer, std::string vocabulary) {
  if (!is_file(tokenizer)) {
    std::string hash = hash_of(tokenizer + "\n" + vocabulary);
    return {.tokenizer = tokenizer, .vocabulary = std::move(vocabulary), .hash = std::move(hash)};
  }
  const std::string bytes = read_tokenizer_file(tokenizer);
  return {.tokenizer = std::filesystem::absolute(tokenizer).string(), .hash = hash_of(bytes)};
}

TextSchema TextSchema::from_checkpoint(const nlohmann::json& json, const std::string& where) {
  try {
    TextSchema schema{.tokenizer = decode_bytes(json_member<std::string>(json, "tokenizer")),
                      .vocabulary = json_member<std::string>(json, "vocabulary"),
                      .hash = json_member<std::string>(json, "hash"),
                      .length = json_member<std::int64_t>(json, "length"),
                      .has_segments = json_member<bool>(json, "segments")};
    if (json.contains("column")) schema.column = json_member<std::string>(json, "column");
    if (json.contains("label")) schema.label = json_member<std::string>(json, "label");
    if (schema.length < 1)
      throw std::invalid_argument(fmt::format("its length is {}", schema.length));
    if (schema.tokenizer == kChars) CharsTokenizer{schema.vocabulary};
    if (!is_file(schema.tokenizer) && schema.hash != of(schema.tokenizer, schema.vocabulary).hash)
      throw std::invalid_argument("its vocabulary has another hash");
    return schema;
  } catch (const std::exception& error) {
    throw Error(ErrorCategory::checkpoint, where, "expected the description of a tokenizer",
                error.what());
  }
}

nlohmann::json TextSchema::to_json() const {
  nlohmann::json json = {{"tokenizer", encode_bytes(tokenizer)},
                         {"vocabulary", vocabulary},
                         {"hash", hash},
                         {"length", length},
                         {"segments", has_segments}};
  if (!column.empty()) json["column"] = column;
  if (!label.empty()) json["label"] = label;
  return json;
}

std::shared_ptr<const Tokenizer> TextSchema::open() const {
  if (tokenizer == kChars) return std::make_shared<CharsTokenizer>(vocabulary);
  if (tokenizer == kBytes) return std::make_shared<BytesTokenizer>();
  const std::string bytes = read_tokenizer_file(tokenizer);
  if (const std::string found = hash_of(bytes); found != hash)
    throw Error(ErrorCategory::data, tokenizer,
                fmt::format("expected the tokenizer of the training, with the hash {}", hash),
                fmt::format("got a file with the hash {}", found));
  return parse_tokenizer_file(bytes, tokenizer);
}

std::string TextSchema::name() const {
  return is_file(tokenizer) ? std::filesystem::path(tokenizer).filename().string() : tokenizer;
}

}  // namespace lockstep::data
