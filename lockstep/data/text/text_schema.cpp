#include "lockstep/data/text/text_schema.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/base/text.h"
#include "lockstep/data/text/tokenizer_file.h"

namespace lockstep::inline v0::data {
namespace {

constexpr const char* kChars = "chars";
constexpr const char* kBytes = "bytes";

std::string hash_of(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

bool is_file(const std::string& tokenizer) { return tokenizer != kChars && tokenizer != kBytes; }

}  // namespace

TextSchema TextSchema::for_tokenizer(const std::string& tokenizer, std::string vocabulary) {
  if (!is_file(tokenizer)) {
    std::string hash = hash_of(tokenizer + "\n" + vocabulary);
    return {.tokenizer = tokenizer, .vocabulary = std::move(vocabulary), .hash = std::move(hash)};
  }
  auto bytes = std::make_shared<const std::string>(read_tokenizer_file(tokenizer));
  return {.tokenizer = std::filesystem::absolute(tokenizer).string(),
          .hash = hash_of(*bytes),
          .content = std::move(bytes)};
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
    if (json.contains("label_words"))
      schema.label_words = json_member<std::vector<std::string>>(json, "label_words");
    if (json.contains("image")) schema.image = json_member<std::string>(json, "image");
    if (json.contains("target")) schema.target = json_member<std::string>(json, "target");
    if (json.contains("source")) {
      schema.source = json_member<std::string>(json, "source");
      schema.target_length = json_member<std::int64_t>(json, "target_length");
      if (schema.source.empty() || schema.target.empty() || schema.target_length < 1 ||
          schema.target_length > kMaxLength)
        throw std::invalid_argument(fmt::format("its pairs are \"{}\" and \"{}\" of length {}",
                                                schema.source, schema.target,
                                                schema.target_length));
    }
    if (schema.length < 1 || schema.length > kMaxLength)
      throw std::invalid_argument(fmt::format("its length is {}", schema.length));
    if (schema.tokenizer == kChars) CharsTokenizer{schema.vocabulary};
    if (!is_file(schema.tokenizer) &&
        schema.hash != for_tokenizer(schema.tokenizer, schema.vocabulary).hash)
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
  if (!label_words.empty()) json["label_words"] = label_words;
  if (!image.empty()) json["image"] = image;
  if (!target.empty()) json["target"] = target;
  if (source.empty()) return json;
  json["source"] = source;
  json["target_length"] = target_length;
  return json;
}

std::shared_ptr<const Tokenizer> TextSchema::open() const {
  if (tokenizer == kChars) return std::make_shared<CharsTokenizer>(vocabulary);
  if (tokenizer == kBytes) return std::make_shared<BytesTokenizer>();
  if (content) return parse_tokenizer_file(*content, tokenizer);
  const std::string bytes = read_tokenizer_file(tokenizer);
  if (const std::string found = hash_of(bytes); found != hash)
    throw Error(ErrorCategory::data, tokenizer,
                fmt::format("expected the tokenizer of the training, with the hash {}", hash),
                fmt::format("got a file with the hash {}", found));
  return parse_tokenizer_file(bytes, tokenizer);
}

void TextSchema::adopt(std::shared_ptr<const std::string> bytes) {
  if (bytes && is_file(tokenizer) && hash_of(*bytes) == hash) content = std::move(bytes);
}

std::shared_ptr<const std::string> TextSchema::find_content() const {
  if (content || !is_file(tokenizer)) return content;
  try {
    auto bytes = std::make_shared<const std::string>(read_tokenizer_file(tokenizer));
    return hash_of(*bytes) == hash ? bytes : nullptr;
  } catch (const Error&) {
    return nullptr;
  }
}

std::string TextSchema::why_content() const {
  if (!content) return "";
  try {
    return hash_of(read_tokenizer_file(tokenizer)) == hash ? "" : tokenizer + " has changed";
  } catch (const Error&) {
    std::error_code ignored;
    return tokenizer +
           (std::filesystem::exists(tokenizer, ignored) ? " cannot be read" : " is missing");
  }
}

bool TextSchema::operator==(const TextSchema& other) const {
  const auto compared = [](const TextSchema& schema) {
    return std::tie(schema.tokenizer, schema.vocabulary, schema.hash, schema.length,
                    schema.has_segments, schema.column, schema.label, schema.label_words,
                    schema.image, schema.source, schema.target, schema.target_length);
  };
  return compared(*this) == compared(other);
}

std::string TextSchema::name() const {
  return is_file(tokenizer) ? std::filesystem::path(tokenizer).filename().string() : tokenizer;
}

}  // namespace lockstep::inline v0::data
