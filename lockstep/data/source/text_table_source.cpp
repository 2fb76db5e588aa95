#include "lockstep/data/source/text_table_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/input_file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/source/csv_reader.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::data {
namespace {

/// The place of the column `name` of a header.
std::size_t column_of(const CsvRows& header, const std::filesystem::path& file,
                      const std::string& name) {
  const auto& names = header.fields();
  const auto found = std::ranges::find(names, name);
  if (found == names.end())
    throw Error(
        ErrorCategory::input, file.string(),
        fmt::format("expected a column \"{}\" in the first line, which names the columns", name),
        got_name(name, names));
  if (std::find(found + 1, names.end(), name) != names.end())
    throw Error(ErrorCategory::input, file.string(),
                fmt::format("expected one column \"{}\"", name), "got several");
  return static_cast<std::size_t>(found - names.begin());
}

/// Calls use(text, label) for each row, with the fields of the columns of `schema`; without a label
/// if it has none. An Error (data) of `use` gets the place of the text.
void for_each_text(const std::vector<std::filesystem::path>& files, const TextSchema& schema,
                   const std::function<void(std::string_view text, std::string_view label)>& use) {
  for (const auto& file : files) {
    const std::string bytes = read_all(InputFile(file), Compression::none);
    CsvRows rows(bytes, file.string(), separator_of(bytes, ','));
    if (!rows.next()) continue;
    const std::size_t columns = rows.fields().size();
    const std::size_t text = column_of(rows, file, schema.column);
    const std::size_t label = schema.label.empty() ? columns : column_of(rows, file, schema.label);
    while (rows.next()) {
      rows.require_fields(columns);
      if (label < columns && rows.fields()[label].empty())
        rows.fail(label, "expected a class", "the field is empty");
      try {
        use(rows.fields()[text], label < columns ? rows.fields()[label] : std::string_view());
      } catch (const Error& error) {
        if (error.category() != ErrorCategory::data) throw;
        rows.fail(text, error.message().expected, error.message().actual);
      }
    }
  }
}

}  // namespace

TextTableSource::TextTableSource(const std::vector<std::filesystem::path>& files,
                                 TextOptions options)
    : files_(files), options_(std::move(options)) {
  if (files_.empty())
    throw Error(ErrorCategory::input, "text", "expected at least one file", "there is none");
  const std::string where = files_.front().string();
  if (!options_.is_table())
    throw Error(ErrorCategory::input, where, "expected column=, the column of the texts",
                "there is none");
  if (options_.stride > 0 || options_.documents)
    throw Error(ErrorCategory::input, where, "expected neither stride= nor documents= with column=",
                options_.stride > 0 ? "got stride=" : "got documents=");
  const auto exchange = std::exchange(options_.exchange, {});
  if (exchange.members > 1)
    for (const auto& file : files_) InputFile{file};  // a rank that lacks one says so
  read_on_node(
      exchange, "tables of texts",
      [this] {
        read_files();
        return data();
      },
      [this](const NodeData& data, SharedSegment memory) { use(data, std::move(memory)); });
}

void TextTableSource::read_files() {
  const std::string where = files_.front().string();
  TextSchema schema = options_.describe(where, [this] {
    TextSchema columns;
    columns.column = options_.column.empty() ? options_.schema->column : options_.column;
    CharacterSet characters;
    for_each_text(files_, columns,
                  [&](std::string_view text, std::string_view) { characters.add(text); });
    return characters.vocabulary();
  });
  schema.has_segments = true;
  TextSchema columns = schema;
  if (options_.without_labels) columns.label.clear();
  schema_ = std::make_shared<const TextSchema>(std::move(schema));
  const auto tokenizer = schema_->open();
  vocabulary_size_ = tokenizer->vocabulary_size();
  if (tokenizer->begin_token() && schema_->length < 3)
    throw Error(ErrorCategory::input, where,
                "expected a length of at least 3, with the tokens before and after each text",
                fmt::format("got {}", schema_->length));
  std::vector<std::string> words;
  for_each_text(files_, columns, [&](std::string_view text, std::string_view label) {
    add_text(*tokenizer, text);
    if (!columns.label.empty()) words.emplace_back(label);
  });
  if (own_ends_.empty())
    throw Error(ErrorCategory::data, where, "expected at least one row after the first line",
                "there is none");
  number_classes(words);
  tokens_ = own_tokens_;
  ends_ = own_ends_;
  labels_ = own_labels_;
  set_spec();
}

void TextTableSource::add_text(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  const auto begin = tokenizer.begin_token();
  const auto room = static_cast<std::size_t>(schema_->length - (begin ? 2 : 0));
  if (tokens.size() > room) {
    tokens.resize(room);
    ++cut_;
  }
  if (begin) own_tokens_.push_back(*begin);
  own_tokens_.insert(own_tokens_.end(), tokens.begin(), tokens.end());
  if (begin) own_tokens_.push_back(tokenizer.end_token().value());
  own_ends_.push_back(own_tokens_.size());
}

void TextTableSource::number_classes(const std::vector<std::string>& words) {
  class_names_ = words;
  std::ranges::sort(class_names_);
  const auto repeated = std::ranges::unique(class_names_);
  class_names_.erase(repeated.begin(), repeated.end());
  if (class_names_.size() > CsvReader::kMaxValues)
    throw Error(ErrorCategory::data, files_.front().string(),
                fmt::format("expected at most {} classes in the column {}", CsvReader::kMaxValues,
                            schema_->label),
                fmt::format("got {}", class_names_.size()));
  const auto number = [](const std::string& word) { return parse_number<std::int64_t>(word); };
  if (std::ranges::all_of(class_names_, [&](const auto& word) { return number(word).has_value(); }))
    std::ranges::stable_sort(class_names_, {}, [&](const auto& word) { return *number(word); });
  std::unordered_map<std::string_view, std::int32_t> numbers;
  for (const std::string& name : class_names_)
    numbers.emplace(name, static_cast<std::int32_t>(numbers.size()));
  for (const std::string& word : words) own_labels_.push_back(numbers.at(word));
}

void TextTableSource::set_spec() {
  const auto tensor = [&](const char* name, std::int64_t classes) {
    return TensorSpec{
        .name = name, .type = ElementType::int32, .shape = {schema_->length}, .classes = classes};
  };
  spec_ = {.inputs = {tensor("tokens", vocabulary_size_), tensor("segments", 0)}};
  if (!class_names_.empty())
    spec_.targets = {{.name = "label",
                      .type = ElementType::int32,
                      .shape = {},
                      .classes = std::ssize(class_names_)}};
}

NodeData TextTableSource::data() const {
  std::string bytes;
  nlohmann::json::to_cbor({{"schema", schema_->to_json()},
                           {"vocabulary_size", vocabulary_size_},
                           {"cut", cut_},
                           {"class_names", encode_strings(class_names_)}},
                          bytes);
  return {std::move(bytes), {std::as_bytes(tokens_), std::as_bytes(ends_), std::as_bytes(labels_)}};
}

void TextTableSource::use(const NodeData& data, SharedSegment memory) {
  const auto described = nlohmann::json::from_cbor(data.description);
  auto schema = TextSchema::from_checkpoint(described.at("schema"), files_.front().string());
  if (schema_) schema.adopt(schema_->content);  // of the member that has read the files
  schema_ = std::make_shared<const TextSchema>(std::move(schema));
  vocabulary_size_ = described.at("vocabulary_size");
  cut_ = described.at("cut");
  class_names_ = decode_strings(described.at("class_names")).get<std::vector<std::string>>();
  const auto numbers = [&]<typename T>(std::span<const T>& array, std::size_t number) {
    const auto& bytes = data.arrays.at(number);
    array = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  };
  numbers(tokens_, 0);
  numbers(ends_, 1);
  numbers(labels_, 2);
  own_tokens_ = {};
  own_ends_ = {};
  own_labels_ = {};
  set_spec();
  memory_ = std::move(memory);
}

void TextTableSource::read(std::int64_t record_id, Sample& sample) const {
  const auto record = static_cast<std::size_t>(record_id);
  const std::size_t begin = record == 0 ? 0 : ends_[record - 1];
  const auto text = tokens_.subspan(begin, ends_[record] - begin);
  const auto tokens = sample.inputs[0].as<std::int32_t>();
  const auto segments = sample.inputs[1].as<std::int32_t>();
  std::ranges::copy(text, tokens.begin());
  std::ranges::fill(tokens.subspan(text.size()), 0);
  std::ranges::fill(segments.first(text.size()), 1);
  std::ranges::fill(segments.subspan(text.size()), 0);
  if (!spec_.targets.empty()) sample.label() = labels_[record];
}

std::string TextTableSource::description() const {
  return fmt::format(
      "{} of {}{}", counted(size(), "text"),
      files_.size() == 1 ? files_.front().string() : counted(std::ssize(files_), "table"),
      preparation());
}

std::string TextTableSource::preparation() const {
  return fmt::format(", tokenizer {} ({} tokens, {}), {}{}", schema_->name(), vocabulary_size_,
                     schema_->hash, counted(schema_->length, "position"),
                     cut_ == 0 ? "" : fmt::format(", {} cut", counted(cut_, "longer text")));
}

}  // namespace lockstep::data
