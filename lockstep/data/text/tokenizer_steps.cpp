#include "lockstep/data/text/tokenizer_steps.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/data/text/tokenizer_json.h"

namespace lockstep::inline v0::data {
namespace {

using nlohmann::json;
using TextStep = TextNormalizer::Step;
using Behavior = WordSplitter::Behavior;

constexpr auto kNormalizers = enum_names<TextStep>({{TextStep::nfc, "NFC"},
                                                    {TextStep::nfd, "NFD"},
                                                    {TextStep::nfkc, "NFKC"},
                                                    {TextStep::nfkd, "NFKD"},
                                                    {TextStep::lower_case, "Lowercase"},
                                                    {TextStep::strip_accents, "StripAccents"}});
constexpr auto kBehaviors =
    enum_names<Behavior>({{Behavior::removed, "Removed"},
                          {Behavior::isolated, "Isolated"},
                          {Behavior::merged_with_previous, "MergedWithPrevious"},
                          {Behavior::merged_with_next, "MergedWithNext"},
                          {Behavior::contiguous, "Contiguous"}});

/// What is \w in Rust, between brackets: letters, marks, numbers, connectors, joiners, and symbols
/// that are letters in a circle or a square.
constexpr std::string_view kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\u200c\u200d\u24b6-\u24e9\U0001f130-\U0001f149"
    "\U0001f150-\U0001f169\U0001f170-\U0001f189";

/// The steps in the list `key` of a "Sequence".
const json& parts_of(const json& settings, const char* key) {
  const json& parts = member(settings, key);
  if (!parts.is_array())
    refuse_tokenizer(fmt::format("its \"{}\" is {}", key, describe_json(parts)));
  return parts;
}

TextNormalizer bert_normalizer(const json& settings) {
  const bool lowers_case = optional_member(settings, "lowercase", true);
  return TextNormalizer::bert(optional_member(settings, "clean_text", true),
                              optional_member(settings, "handle_chinese_chars", true),
                              optional_member(settings, "strip_accents", lowers_case), lowers_case);
}

Behavior behavior_of(const json& settings, const char* otherwise) {
  const auto name = optional_member<std::string>(settings, "behavior", otherwise);
  if (const auto behavior = kBehaviors.find(name)) return *behavior;
  refuse_tokenizer(fmt::format("its \"behavior\" is \"{}\", which is not supported", name));
}

/// "Split", with a text or a regular expression.
WordSplitter::Step split_step(const json& settings) {
  const json& pattern = member(settings, "pattern");
  const json& text = member(pattern, "String");
  WordSplitter::Step step{.behavior = behavior_of(settings, "Isolated"),
                          .is_inverted = optional_member(settings, "invert", false)};
  if (text.is_string() && !text.get_ref<const std::string&>().empty()) {
    step.pattern = SplitPattern::literal(text.get<std::string>());
    return step;
  }
  const json& regex = member(pattern, "Regex");
  if (!regex.is_string()) refuse_tokenizer("its pre_tokenizer \"Split\" has no pattern");
  try {
    step.pattern.emplace(regex.get_ref<const std::string&>());
  } catch (const std::invalid_argument& error) {
    refuse_tokenizer(fmt::format("its pre_tokenizer \"Split\" has the pattern {}: {}",
                                 describe_json(regex), error.what()));
  }
  return step;
}

WordSplitter::Step byte_level_step(const json& settings) {
  WordSplitter::Step step{.has_prefix_space = optional_member(settings, "add_prefix_space", true)};
  if (optional_member(settings, "use_regex", true)) step.pattern.emplace(kGpt2Words);
  return step;
}

}  // namespace

TextNormalizer read_text_normalizer(const json& settings) {
  if (settings.is_null()) return {};
  const std::string type = type_of(settings);
  if (type == "BertNormalizer") return bert_normalizer(settings);
  if (const auto step = kNormalizers.find(type)) return TextNormalizer({*step});
  if (type != "Sequence")
    refuse_tokenizer(fmt::format("its normalizer \"{}\" is not supported", type));
  TextNormalizer all;
  for (const json& part : parts_of(settings, "normalizers")) all.append(read_text_normalizer(part));
  return all;
}

PreTokenizer read_pre_tokenizer(const json& settings) {
  if (settings.is_null()) return {};
  const std::string type = type_of(settings);
  const auto single = [](WordSplitter::Step step) {
    return PreTokenizer{WordSplitter({std::move(step)})};
  };
  if (type == "BertPreTokenizer") return {WordSplitter::bert()};
  if (type == "ByteLevel") return {WordSplitter({byte_level_step(settings)}), true};
  if (type == "Split") return single(split_step(settings));
  if (type == "WhitespaceSplit")
    return single({.pattern = SplitPattern("\\s"), .behavior = Behavior::removed});
  if (type == "Whitespace")
    return single({.pattern = SplitPattern(fmt::format("[{0}]+|[^{0}\\s]+", kWord)),
                   .behavior = Behavior::removed,
                   .is_inverted = true});
  if (type == "Digits")
    return single({.pattern = SplitPattern("\\p{N}"),
                   .behavior = optional_member(settings, "individual_digits", false)
                                   ? Behavior::isolated
                                   : Behavior::contiguous});
  if (type == "Punctuation")
    return single({.pattern = SplitPattern(fmt::format("[{}]", kPunctuation)),
                   .behavior = behavior_of(settings, "Isolated")});
  if (type != "Sequence")
    refuse_tokenizer(fmt::format("its pre_tokenizer \"{}\" is not supported", type));
  PreTokenizer all;
  for (const json& part : parts_of(settings, "pretokenizers")) {
    if (all.is_byte_level)
      refuse_tokenizer(
          fmt::format("its pre_tokenizer \"{}\" follows \"ByteLevel\"", type_of(part)));
    const PreTokenizer next = read_pre_tokenizer(part);
    all.splitter.append(next.splitter);
    all.is_byte_level = next.is_byte_level;
  }
  return all;
}

}  // namespace lockstep::inline v0::data
