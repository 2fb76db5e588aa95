#include "lockstep/data/source/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/file/file_kind.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {
namespace {

constexpr auto kDocuments =
    enum_names<TextDocuments>({{TextDocuments::files, "files"}, {TextDocuments::lines, "lines"}});
constexpr const char* kAnyBytes = "bytes";

/// Calls use(document) for the file, or for each of its lines that is not empty. An Error (data) of
/// `use` is rethrown with the file and the line.
void for_each_document(const std::filesystem::path& path, const std::string& text, bool by_lines,
                       const std::function<void(std::string_view)>& use) {
  std::size_t line = 0;
  try {
    if (!by_lines) return use(text);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string_view document = std::string_view(text).substr(at, end - at);
      if (document.ends_with('\r')) document.remove_suffix(1);
      ++line;
      if (!document.empty()) use(document);
      at = end + 1;
    }
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::data) throw;
    throw Error(ErrorCategory::data,
                line == 0 ? path.string() : fmt::format("{}: line {}", path.string(), line),
                error.message().expected, error.message().actual);
  }
}

/// The text of a file: UTF-8 without a byte order mark, or all bytes if `has_any_bytes`.
std::string text_of(const std::filesystem::path& path, bool has_any_bytes) {
  std::string text = read_all(InputFile(path), Compression::none);
  if (has_any_bytes) return text;
  if (const FileKind kind = file_kind(text); kind.is_no_text())
    refuse_kind(path, kind, "expected text in UTF-8");
  for_each_document(path, text, false, check_utf8);
  text.erase(0, text.size() - without_byte_order_mark(text).size());
  return text;
}

/// The vocabulary of all documents.
std::string characters_of(const std::vector<std::filesystem::path>& files, bool by_lines) {
  CharacterSet characters;
  for (const auto& path : files)
    for_each_document(path, text_of(path, false), by_lines,
                      [&](std::string_view document) { characters.add(document); });
  return characters.vocabulary();
}

}  // namespace

TextSpec TextSpec::parse(std::string_view text, const std::string& where) {
  constexpr auto kMaxLength = static_cast<double>(TextSchema::kMaxLength);
  Spec spec = Spec::of_path(where, text);
  TextOptions options;
  spec.read("tokenizer", options.tokenizer);
  spec.read("length", options.length, 1, kMaxLength);
  spec.read("stride", options.stride, 1, kMaxLength);
  spec.read_parsed("documents", options.documents,
                   [](const std::string& name) { return kDocuments.parse("documents", name); });
  spec.read("column", options.column);
  spec.read("label", options.label);
  spec.read("label-words", options.label_words);
  spec.read("image", options.image);
  spec.read("source", options.source);
  spec.read("target", options.target);
  spec.read("target-length", options.target_length, 1, kMaxLength);
  spec.finish();
  return {.files = spec.head(), .options = std::move(options)};
}

TextSchema TextOptions::describe(const std::string& file,
                                 const std::function<std::string()>& characters) const {
  const TextSchema* const known = schema.get();
  const std::string chosen = !tokenizer.empty() ? tokenizer
                             : known != nullptr ? known->tokenizer
                                                : "chars";
  const bool is_same = known != nullptr && known->tokenizer == chosen;
  const auto learned = [&] {
    std::string vocabulary = characters();
    if (vocabulary.empty())
      throw Error(ErrorCategory::data, file, "expected at least one character of text",
                  "there is none");
    return vocabulary;
  };
  TextSchema described = is_same             ? *known
                         : chosen == "chars" ? TextSchema::for_tokenizer("chars", learned())
                                             : TextSchema::for_tokenizer(chosen);
  if (known != nullptr && !described.agrees_with(*known))
    throw Error(ErrorCategory::input, file,
                fmt::format("expected the tokenizer of the training, {} with the hash {}",
                            known->name(), known->hash),
                fmt::format("got {} with the hash {}", described.name(), described.hash));
  described.length = length > 0 ? length : known != nullptr ? known->length : kDefaultLength;
  if (described.length > TextSchema::kMaxLength)
    throw Error(ErrorCategory::input, file,
                fmt::format("expected a length up to {}", TextSchema::kMaxLength),
                fmt::format("got {}", described.length));
  described.column = !column.empty() || known == nullptr ? column : known->column;
  described.label = !label.empty() || known == nullptr ? label : known->label;
  described.label_words =
      !label_words.empty() || known == nullptr ? label_words : known->label_words;
  described.source = !source.empty() || known == nullptr ? source : known->source;
  described.target = !target.empty() || known == nullptr ? target : known->target;
  if (described.source.empty()) return described;
  described.target_length = target_length > 0                              ? target_length
                            : known != nullptr && known->target_length > 0 ? known->target_length
                                                                           : described.length;
  if (described.target_length > TextSchema::kMaxLength)
    throw Error(ErrorCategory::input, file,
                fmt::format("expected a length of targets up to {}", TextSchema::kMaxLength),
                fmt::format("got {}", described.target_length));
  return described;
}

TextSource::TextSource(const std::vector<std::filesystem::path>& files, TextOptions options)
    : files_(files), options_(std::move(options)) {
  if (files_.empty())
    throw Error(ErrorCategory::input, "text", "expected at least one file", "there is none");
  if (options_.is_table() || !options_.label.empty())
    throw Error(ErrorCategory::input, files_.front().string(),
                options_.is_table() ? "expected a text, not a column of a table"
                                    : "expected column=, the column of the texts, with label=",
                options_.is_pairs()   ? "got source= and target="
                : options_.is_table() ? "got column="
                                      : "there is none");
  if (options_.target_length > 0)
    throw Error(ErrorCategory::input, files_.front().string(),
                "expected source= and target= with target-length=", "there is neither");
  if (options_.has_images())
    throw Error(ErrorCategory::input, files_.front().string(),
                "expected a text, not captions of images", "got image=");
  const auto exchange = std::exchange(options_.exchange, {});
  if (exchange.members > 1)
    for (const auto& file : files_) InputFile{file};  // throws on every rank that lacks one
  read_on_node(
      exchange, "text files",
      [this] {
        read_files();
        return data();
      },
      [this](const NodeData& data, SharedSegment memory) { use(data, std::move(memory)); });
}

void TextSource::append(std::span<const std::int32_t> tokens) {
  if (vocabulary_size_ > std::numeric_limits<std::uint16_t>::max() + 1)
    own_wide_.insert(own_wide_.end(), tokens.begin(), tokens.end());
  else
    std::ranges::transform(tokens, std::back_inserter(own_narrow_),
                           [](std::int32_t token) { return static_cast<std::uint16_t>(token); });
}

void TextSource::read_files() {
  const TextSchema* const known = options_.schema.get();
  const bool by_lines = options_.documents ? *options_.documents == TextDocuments::lines
                                           : known != nullptr && known->has_segments;
  TextSchema schema =
      options_.describe(files_.front().string(), [&] { return characters_of(files_, by_lines); });
  schema.has_segments = by_lines;
  schema_ = std::make_shared<const TextSchema>(std::move(schema));
  stride_ = options_.stride > 0 ? options_.stride : schema_->length;
  if (stride_ > schema_->length || (by_lines && options_.stride > 0))
    throw Error(ErrorCategory::input, files_.front().string(),
                by_lines ? "expected no stride with documents=lines"
                         : fmt::format("expected a stride up to the length, {}", schema_->length),
                fmt::format("got {}", stride_));
  const auto tokenizer = schema_->open();
  vocabulary_size_ = tokenizer->vocabulary_size();
  const auto end = tokenizer->end_token();
  end_label_ = end.value_or(-1);
  for (const auto& path : files_) {
    const std::string text = text_of(path, schema_->tokenizer == kAnyBytes);
    for_each_document(path, text, by_lines, [&](std::string_view document) {
      const auto tokens = tokenizer->encode(document);
      append(tokens);
      if (!by_lines && end) append({&*end, 1});
      if (by_lines && !tokens.empty()) own_ends_.push_back(own_narrow_.size() + own_wide_.size());
    });
  }
  narrow_ = own_narrow_;
  wide_ = own_wide_;
  ends_ = own_ends_;
  if (by_lines) pack_documents();
  set_info();
}

/// Fills windows with as many whole documents as fit.
void TextSource::pack_documents() {
  const auto length = static_cast<std::uint64_t>(schema_->length);
  std::uint64_t at = 0;
  std::uint64_t window_end = 0;  // none yet
  for (std::uint64_t document = 0; document < ends_.size(); ++document) {
    while (at < ends_[document]) {
      const std::uint64_t piece = std::min(ends_[document] - at, length);
      if (at + piece > window_end) {
        own_windows_.push_back({at, document});
        window_end = at + length;
      }
      at += piece;
    }
  }
  own_windows_.push_back({at, ends_.size()});
  windows_ = own_windows_;
}

void TextSource::set_info() {
  const std::vector<std::int64_t> shape = {schema_->length};
  const auto tokens = static_cast<std::int64_t>(narrow_.size() + wide_.size());
  const auto tensor = [&](const char* name, std::int64_t classes) {
    return TensorSpec{.name = name, .type = ElementType::int32, .shape = shape, .classes = classes};
  };
  info_.spec = {.inputs = {tensor("tokens", vocabulary_size_)},
                .targets = {tensor("next", vocabulary_size_)}};
  if (schema_->has_segments) {
    info_.spec.inputs.push_back(tensor("segments", 0));
    info_.size = std::ssize(windows_) - 1;
  } else {
    const std::int64_t more = std::max<std::int64_t>(0, tokens - 1 - schema_->length);
    info_.size = tokens < 2 ? 0 : 1 + (more + stride_ - 1) / stride_;
  }
  if (info_.size < 1)
    throw Error(ErrorCategory::data, files_.front().string(),
                schema_->has_segments ? "expected at least one line with text"
                                      : "expected at least 2 tokens of text",
                fmt::format("there {} in {}", tokens == 1 ? "is one" : "are none",
                            counted(std::ssize(files_), "file")));
  info_.preparation = fmt::format(
      ", tokenizer {} ({} tokens, {}), {} of {}", schema_->name(), vocabulary_size_, schema_->hash,
      schema_->has_segments ? "packed lines" : "windows",
      stride_ == schema_->length ? std::to_string(schema_->length)
                                 : fmt::format("{} every {}", schema_->length, stride_));
  info_.description = fmt::format(
      "{} tokens of {}{}", tokens,
      files_.size() == 1 ? files_.front().string() : counted(std::ssize(files_), "text file"),
      info_.preparation);
  info_.text = schema_;
}

NodeData TextSource::data() const {
  return {pack_json({{"schema", schema_->to_json()},
                     {"stride", stride_},
                     {"vocabulary_size", vocabulary_size_},
                     {"end_label", end_label_}}),
          {std::as_bytes(narrow_), std::as_bytes(wide_), std::as_bytes(ends_),
           std::as_bytes(windows_)}};
}

void TextSource::use(const NodeData& data, SharedSegment memory) {
  const auto described = unpack_json(data.description);
  auto schema = TextSchema::from_checkpoint(described.at("schema"), files_.front().string());
  if (schema_) schema.adopt(schema_->content);  // content from the member that has read the files
  schema_ = std::make_shared<const TextSchema>(std::move(schema));
  stride_ = described.at("stride");
  vocabulary_size_ = described.at("vocabulary_size");
  end_label_ = described.at("end_label");
  narrow_ = data.array<std::uint16_t>(0);
  wide_ = data.array<std::int32_t>(1);
  ends_ = data.array<std::uint64_t>(2);
  windows_ = data.array<Window>(3);
  own_narrow_ = {};
  own_wide_ = {};
  own_ends_ = {};
  own_windows_ = {};
  set_info();
  memory_ = std::move(memory);
}

void TextSource::read(std::int64_t record_id, Sample& sample) const {
  const auto record = static_cast<std::uint64_t>(record_id);
  const auto tokens = sample.inputs[0].as<std::int32_t>();
  const auto next = sample.targets[0].as<std::int32_t>();
  const bool has_segments = schema_->has_segments;
  const std::uint64_t all = narrow_.size() + wide_.size();
  const std::uint64_t begin =
      has_segments ? windows_[record].begin : record * static_cast<std::uint64_t>(stride_);
  const std::uint64_t end = std::min(has_segments ? windows_[record + 1].begin : all - 1,
                                     begin + static_cast<std::uint64_t>(schema_->length));
  const auto count = static_cast<std::size_t>(end - begin);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = token(begin + i);
  std::ranges::fill(tokens.subspan(count), 0);
  for (std::size_t i = 0; i < count; ++i)
    next[i] = begin + i + 1 < all ? token(begin + i + 1) : end_label_;
  std::ranges::fill(next.subspan(count), -1);
  if (!has_segments) return;
  const auto segments = sample.inputs[1].as<std::int32_t>();
  std::uint64_t document = windows_[record].document;
  std::int32_t segment = 1;
  for (std::size_t i = 0; i < count; ++i) {
    segments[i] = segment;
    if (begin + i + 1 != ends_[document]) continue;
    next[i] = end_label_;
    ++document;
    ++segment;
  }
  std::ranges::fill(segments.subspan(count), 0);
}

}  // namespace lockstep::inline v0::data
