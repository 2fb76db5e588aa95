#include "lockstep/data/text/tokenizer_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file_kind.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/text/byte_pairs.h"
#include "lockstep/data/text/sentence_piece_file.h"
#include "lockstep/data/text/tokenizer_json.h"
#include "lockstep/data/text/tokenizer_steps.h"
#include "lockstep/data/text/unicode/unicode.h"
#include "lockstep/data/text/word_piece.h"

namespace lockstep::inline v0::data {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{64} << 20;
constexpr std::int32_t kMaxTokens = 1 << 20;
// For each of kMaxTokens tokens, the token and a merge as a pair of strings; and some settings.
constexpr std::size_t kMaxValues = std::size_t{5} * kMaxTokens;

/// "Split", or a list of the steps of a sequence.
std::string name_of_step(const json& step) {
  const json& parts = member(step, "pretokenizers");
  std::string names;
  for (const json& part : parts)
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", type_of(part));
  if (!names.empty()) return names;
  return step.is_null() ? "none" : fmt::format("\"{}\"", type_of(step));
}

/// Throws if an option that would change the tokens is on.
void require_off(const json& object, const char* key) {
  const json& value = member(object, key);
  const bool is_off = value.is_null() || value == false || value == 0 || value == "";
  if (!is_off)
    refuse_tokenizer(
        fmt::format("its \"{}\" is {}, which is not supported", key, describe_json(value)));
}

/// The number of `token`, one of about `count` tokens: memory is allocated for all numbers up to
/// the largest, so a short file must not have a very large one.
std::int32_t number_of(const json& value, std::string_view token, std::size_t count) {
  constexpr std::size_t kMaxUnused = std::size_t{1} << 16;
  if (!value.is_number_integer() || value < 0 || value >= kMaxTokens ||
      value >= 2 * count + kMaxUnused)
    refuse_tokenizer(fmt::format("the number of \"{}\" is {}", token, describe_json(value)));
  return value.get<std::int32_t>();
}

using Numbers = std::unordered_map<std::string, std::int32_t>;

/// Sets tokens[number]; each number is that of one token.
void set_token(std::vector<std::string>& tokens, std::int32_t number, std::string_view text) {
  const auto index = static_cast<std::size_t>(number);
  if (text.empty()) refuse_tokenizer(fmt::format("the token {} is empty", number));
  if (index >= tokens.size()) tokens.resize(index + 1);
  if (!tokens[index].empty() && tokens[index] != text)
    refuse_tokenizer(
        fmt::format("\"{}\" and \"{}\" have the number {}", tokens[index], text, number));
  tokens[index] = text;
}

Numbers vocabulary_of(const json& model) {
  const json& vocabulary = member(model, "vocab");
  if (!vocabulary.is_object() || vocabulary.empty())
    refuse_tokenizer("its vocabulary is " + describe_json(vocabulary));
  Numbers numbers;
  for (const auto& [token, number] : vocabulary.items())
    numbers.try_emplace(token, number_of(number, token, vocabulary.size()));
  return numbers;
}

/// Sets the special tokens, and returns the one that ends a document.
std::optional<std::int32_t> add_special(const json& file, TextPreparation& preparation,
                                        std::vector<std::string>& tokens) {
  std::optional<std::int32_t> end;
  std::vector<AddedTokens::Token> exact;
  std::vector<AddedTokens::Token> normalized;
  const std::size_t count =
      member(file, "added_tokens").size() + member(member(file, "model"), "vocab").size();
  for (const json& token : member(file, "added_tokens")) {
    const auto text = json_member<std::string>(token, "content");
    require_off(token, "single_word");
    const std::int32_t number = number_of(member(token, "id"), text, count);
    set_token(tokens, number, text);
    const bool is_normalized = optional_member(token, "normalized", false);
    (is_normalized ? normalized : exact)
        .push_back({.text = is_normalized ? preparation.normalizer.apply(text) : text,
                    .number = number,
                    .strips_left = optional_member(token, "lstrip", false),
                    .strips_right = optional_member(token, "rstrip", false)});
    for (const char* known : {"<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]",
                              "<\uff5cend\u2581of\u2581sentence\uff5c>"})
      if (text == known && !end) end = number;
  }
  std::erase_if(normalized, [](const AddedTokens::Token& token) { return token.text.empty(); });
  preparation.exact = AddedTokens(std::move(exact));
  preparation.normalized = AddedTokens(std::move(normalized));
  return end;
}

/// GPT-2 writes bytes as printable characters: printable bytes unchanged, the others as code points
/// from 256.
std::array<char32_t, 256> byte_symbols() {
  std::array<char32_t, 256> symbols;
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    symbols[byte] = is_printable ? byte : next++;
  }
  return symbols;
}

/// The bytes of a token.
std::string bytes_of_symbols(std::string_view token) {
  static const std::unordered_map<char32_t, char> byte_of = [] {
    std::unordered_map<char32_t, char> bytes;
    const auto symbols = byte_symbols();
    for (std::size_t byte = 0; byte < 256; ++byte) bytes[symbols[byte]] = static_cast<char>(byte);
    return bytes;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const auto byte = byte_of.find(next_code_point(token, at));
    if (byte == byte_of.end())
      refuse_tokenizer(fmt::format("\"{}\" has a character that stands for no byte", token));
    bytes += byte->second;
  }
  return bytes;
}

/// "a b", or ["a", "b"] in newer files.
std::pair<std::string, std::string> pair_of(const json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0], merge[1]};
  const std::string text = merge.is_string() ? merge.get<std::string>() : "";
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) refuse_tokenizer("a merge is " + describe_json(merge));
  return {text.substr(0, space), text.substr(space + 1)};
}

std::shared_ptr<const Tokenizer> byte_pairs_of(const json& file, const json& model) {
  PreTokenizer split = read_pre_tokenizer(member(file, "pre_tokenizer"));
  if (!split.is_byte_level)
    refuse_tokenizer(
        fmt::format("its model is \"BPE\", and its pre_tokenizer {}, without \"ByteLevel\"",
                    name_of_step(member(file, "pre_tokenizer"))));
  for (const char* key :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"})
    require_off(model, key);
  const Numbers numbers = vocabulary_of(model);
  BytePairs::Definition definition;
  definition.preparation.normalizer = read_text_normalizer(member(file, "normalizer"));
  definition.preparation.splitter = std::move(split.splitter);
  definition.ignores_merges = optional_member(model, "ignore_merges", false);
  std::vector<std::string> special;
  definition.end = add_special(file, definition.preparation, special);
  definition.tokens.resize(special.size());
  for (const auto& [token, number] : numbers) {
    const auto index = static_cast<std::size_t>(number);
    const bool is_special = index < special.size() && special[index] == token;
    set_token(definition.tokens, number, is_special ? token : bytes_of_symbols(token));
  }
  for (std::size_t i = 0; i < special.size(); ++i)
    if (!special[i].empty()) set_token(definition.tokens, static_cast<std::int32_t>(i), special[i]);
  const auto find = [&](const std::string& token) {
    const auto found = numbers.find(token);
    if (found == numbers.end())
      refuse_tokenizer(fmt::format("its vocabulary has no \"{}\"", token));
    return found->second;
  };
  const auto symbols = byte_symbols();
  for (std::size_t byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_utf8(symbols[byte], symbol);
    definition.byte_tokens[byte] = find(symbol);
  }
  const json& merges = member(model, "merges");
  if (!merges.is_array()) refuse_tokenizer("its \"merges\" is " + describe_json(merges));
  for (const json& merge : merges) {
    const auto [left, right] = pair_of(merge);
    definition.merges.push_back({find(left), find(right), find(left + right)});
  }
  return std::make_shared<BytePairs>(std::move(definition));
}

std::shared_ptr<const Tokenizer> word_piece_of(const json& file, const json& model) {
  PreTokenizer split = read_pre_tokenizer(member(file, "pre_tokenizer"));
  if (split.is_byte_level)
    refuse_tokenizer("its model is \"WordPiece\", and its pre_tokenizer \"ByteLevel\"");
  const Numbers numbers = vocabulary_of(model);
  WordPiece::Definition definition;
  definition.preparation.normalizer = read_text_normalizer(member(file, "normalizer"));
  definition.preparation.splitter = std::move(split.splitter);
  definition.continuation = optional_member<std::string>(model, "continuing_subword_prefix", "##");
  const auto longest = optional_member<std::int64_t>(model, "max_input_chars_per_word", 100);
  if (longest < 1 || longest > 1000)
    refuse_tokenizer(fmt::format("its \"max_input_chars_per_word\" is {}", longest));
  definition.longest_word = static_cast<std::size_t>(longest);
  for (const auto& [token, number] : numbers) set_token(definition.tokens, number, token);
  definition.end = add_special(file, definition.preparation, definition.tokens);
  if (const auto begin = numbers.find("[CLS]"); begin != numbers.end() && definition.end)
    definition.begin = begin->second;
  const auto unknown = numbers.find(optional_member<std::string>(model, "unk_token", "[UNK]"));
  if (unknown == numbers.end()) refuse_tokenizer("its vocabulary has no unknown token");
  definition.unknown = unknown->second;
  return std::make_shared<WordPiece>(std::move(definition));
}

/// Parses BERT's vocab.txt. It does not state whether letters become lower case: they do unless a
/// token that is not special has a capital letter.
std::shared_ptr<const Tokenizer> word_list(std::string_view text) {
  try {
    check_utf8(text);
  } catch (const Error& error) {
    refuse_tokenizer(error.message().actual);
  }
  WordPiece::Definition definition;
  std::optional<std::int32_t> unknown;
  std::unordered_map<std::string_view, std::int32_t> numbers;
  std::vector<AddedTokens::Token> special_tokens;
  bool lowers_case = true;
  for (std::int32_t number = 0; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view token = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (token.ends_with('\r')) token.remove_suffix(1);
    if (number >= kMaxTokens)
      refuse_tokenizer(fmt::format("it has more than {} lines", kMaxTokens));
    if (!numbers.try_emplace(token, number).second)
      refuse_tokenizer(fmt::format("line {} has the token of an earlier one", number + 1));
    set_token(definition.tokens, number, token);
    const bool is_bracketed = token.starts_with('[') && token.ends_with(']') && token.size() > 2;
    if (!is_bracketed && std::ranges::any_of(token, [](char c) { return c >= 'A' && c <= 'Z'; }))
      lowers_case = false;
    if (token == "[UNK]") unknown = number;
    if (token == "[SEP]") definition.end = number;
    if (token == "[CLS]") definition.begin = number;
    for (const char* special : {"[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]"})
      if (token == special) special_tokens.push_back({std::string(token), number});
  }
  definition.preparation = {
      .exact = AddedTokens(std::move(special_tokens)),
      .normalizer = TextNormalizer::bert(true, true, lowers_case, lowers_case),
      .splitter = WordSplitter::bert()};
  if (!unknown) refuse_tokenizer("it has no [UNK]");
  definition.unknown = *unknown;
  if (!definition.end) definition.begin.reset();
  return std::make_shared<WordPiece>(std::move(definition));
}

std::shared_ptr<const Tokenizer> tokenizer_of(const json& file) {
  const json& model = member(file, "model");
  const std::string type = member(model, "type").is_null() && member(model, "merges").is_array()
                               ? "BPE"
                               : type_of(model);
  if (type == "BPE") return byte_pairs_of(file, model);
  if (type == "WordPiece") return word_piece_of(file, model);
  refuse_tokenizer(model.is_null() ? "it has no \"model\""
                                   : fmt::format("its model is \"{}\"", type));
}

}  // namespace

std::string read_tokenizer_file(const std::filesystem::path& file) {
  return read_all(InputFile(file), Compression::none, kMaxFileBytes);
}

std::shared_ptr<const Tokenizer> parse_tokenizer_file(std::string_view bytes,
                                                      const std::string& where) {
  try {
    if (const FileKind kind = file_kind(bytes); kind.content > FileKind::Content::json)
      refuse_tokenizer(fmt::format("it is {}", kind.name));
    // A message that begins with a piece begins with this byte, and a list not with an empty line.
    const bool is_message = bytes.starts_with('\n') || where.ends_with(".model");
    if (is_message) return parse_sentence_piece(bytes);
    if (!bytes.starts_with('{')) return word_list(bytes);
    return tokenizer_of(parse_json(bytes, ErrorCategory::data, where,
                                   {.bytes = kMaxFileBytes, .values = kMaxValues}));
  } catch (const std::invalid_argument& error) {
    throw Error(ErrorCategory::data, where,
                "expected tokenizer.json with byte-level BPE or WordPiece, a vocab.txt of "
                "WordPiece, or a model of SentencePiece",
                error.what());
  }
}

}  // namespace lockstep::inline v0::data
