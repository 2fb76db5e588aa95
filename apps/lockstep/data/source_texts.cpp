#include "apps/lockstep/data/source_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/text/target_text.h"
#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::apps {

std::vector<std::string> read_source_lines(const std::string& path) {
  const std::string read = path == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                                       : data::read_all(InputFile(path), data::Compression::none);
  const std::string_view all = data::without_byte_order_mark(read);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    lines.emplace_back(all.substr(at, end - at));
    if (lines.back().ends_with('\r')) lines.back().pop_back();
    at = end + 1;
  }
  if (lines.empty())
    throw Error(ErrorCategory::data, name_of_sources(path), "expected at least one line",
                "there is none");
  return lines;
}

std::string name_of_sources(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

SourceText::SourceText(std::string text, const data::Tokenizer& tokenizer,
                       const std::vector<model::NetworkInput>& inputs, const std::string& where)
    : text_(std::move(text)) {
  std::string input_names;
  bool fits = !inputs.empty();
  std::size_t sources = 0;
  for (const model::NetworkInput& input : inputs) {
    input_names += fmt::format("{}{} {}", input_names.empty() ? "" : ", ", input.name,
                               model::to_string(input.shape));
    are_segments_.push_back(input.name == "source_segments");
    sources += input.name == "source" ? 1 : 0;
    fits = fits && (are_segments_.back() || input.name == "source") &&
           input.type == ElementType::int32 && input.shape.size() == 1 &&
           input.shape == inputs.front().shape;
  }
  if (!fits || sources != 1)
    throw Error(ErrorCategory::input, where,
                "expected a network that reads source [S], perhaps source_segments [S], and tokens",
                fmt::format("got {}", input_names.empty() ? "tokens alone" : input_names));
  try {
    const auto length = static_cast<std::size_t>(inputs.front().shape.front());
    data::TextTokens whole =
        data::whole_text(tokenizer, data::encode_nonempty(tokenizer, text_), length);
    is_cut_ = whole.is_cut;
    tokens_ = std::move(whole.tokens);
    segments_.assign(tokens_.size(), 1);
    tokens_.resize(length);
    segments_.resize(length);
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, where, error.message().expected, error.message().actual);
  }
}

std::vector<model::InputView> SourceText::context() const {
  std::vector<model::InputView> views;
  for (const bool are_segments : are_segments_)
    views.push_back({.indices = are_segments ? segments_ : tokens_});
  return views;
}

}  // namespace lockstep::inline v0::apps
