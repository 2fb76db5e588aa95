#include "lockstep/data/source/text_table_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/source/csv/csv_reader.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::inline v0::data {
namespace {

/// Calls use(number, field) for the fields of the columns called `names` in each row, in the order
/// of the names. An Error (data) of `use` is rethrown with the position of the field.
void for_each_field(const std::vector<std::filesystem::path>& files,
                    const std::vector<std::string>& names,
                    const std::function<void(std::size_t number, std::string_view field)>& use) {
  for (const auto& file : files) {
    const std::string bytes = read_all(InputFile(file), Compression::none);
    CsvRows rows(bytes, file.string(), separator_of(bytes, ','));
    check_table_text(bytes, file.string());
    if (!rows.next()) continue;
    const std::size_t count = rows.fields().size();
    std::vector<std::size_t> columns;
    for (const std::string& name : names) columns.push_back(rows.require_column(name));
    while (rows.next()) {
      rows.require_fields(count);
      for (std::size_t number = 0; number < columns.size(); ++number) {
        try {
          use(number, rows.fields()[columns[number]]);
        } catch (const Error& error) {
          if (error.category() != ErrorCategory::data) throw;
          rows.fail(columns[number], error.message().expected, error.message().actual);
        }
      }
    }
  }
}

/// The columns of a table of texts that are read: with classes, or with targets.
std::vector<std::string> columns_of(const TextSchema& schema, bool without_labels) {
  if (!schema.source.empty()) return {schema.source, schema.target};
  if (schema.label.empty() || without_labels) return {schema.column};
  return {schema.column, schema.label};
}

/// Whether the label is missing and not the name of a class.
bool lacks_label(const TextSchema& schema, std::string_view field) {
  return is_missing(field) &&
         std::ranges::find(schema.label_words, field) == schema.label_words.end();
}

/// Throws the Error about the first missing label, `field`.
[[noreturn]] void fail_label(const std::vector<std::filesystem::path>& files,
                             const TextSchema& schema, std::string_view field) {
  std::int64_t missing = 0;
  for_each_field(files, {schema.label}, [&](std::size_t, std::string_view label) {
    if (lacks_label(schema, label)) ++missing;
  });
  throw Error(
      ErrorCategory::data, files.front().string(),
      fmt::format("expected a class (remove these rows, or fill them in{})",
                  field.empty() ? ""
                                : fmt::format("; label-words={} if it is the name of a class",
                                              quote_spec(field))),
      fmt::format("got \"{}\"; missing: {} in {}", field, schema.label, counted(missing, "row")));
}

/// Throws Error (input) unless the columns of both texts are known, and no others.
void check_pairs(const TextOptions& options, const std::string& where) {
  const TextSchema* const known = options.schema.get();
  const auto refuse = [&](const char* expected, const char* actual) {
    throw Error(ErrorCategory::input, where, expected, actual);
  };
  const bool is_known = known != nullptr && !known->source.empty();
  if (!is_known && (options.source.empty() || options.target.empty()))
    refuse("expected source= and target=, the columns of both texts",
           options.source.empty() ? "there is no source=" : "there is no target=");
  if (known != nullptr && !known->column.empty())
    refuse("expected a column of texts, as in the training", "got source= or target=");
  if (!options.column.empty() || !options.label.empty())
    refuse("expected neither column= nor label= with source= and target=",
           !options.label.empty() ? "got label=" : "got column=");
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
  const char* const columns = options_.is_pairs() ? "source=" : "column=";
  if (options_.stride > 0 || options_.documents)
    throw Error(ErrorCategory::input, where,
                fmt::format("expected neither stride= nor documents= with {}", columns),
                options_.stride > 0 ? "got stride=" : "got documents=");
  if (options_.is_pairs()) check_pairs(options_, where);
  if (!options_.is_pairs() && options_.target_length > 0)
    throw Error(ErrorCategory::input, where,
                "expected source= and target= with target-length=", "there is neither");
  const auto exchange = std::exchange(options_.exchange, {});
  if (exchange.members > 1)
    for (const auto& file : files_) InputFile{file};  // throws on every rank that lacks one
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
  const auto require_rows = [&](bool has_rows) {
    if (!has_rows)
      throw Error(ErrorCategory::data, where, "expected at least one row after the first line",
                  "there is none");
  };
  const auto characters = [&] {
    TextSchema columns;
    columns.column =
        options_.column.empty() && options_.schema ? options_.schema->column : options_.column;
    columns.source =
        options_.source.empty() && options_.schema ? options_.schema->source : options_.source;
    columns.target =
        options_.target.empty() && options_.schema ? options_.schema->target : options_.target;
    CharacterSet all;
    bool has_rows = false;
    for_each_field(files_, columns_of(columns, true), [&](std::size_t, std::string_view text) {
      all.add(text);
      has_rows = true;
    });
    require_rows(has_rows);
    return all.vocabulary();
  };
  TextSchema schema = options_.describe(where, characters);
  schema.has_segments = true;
  schema_ = std::make_shared<const TextSchema>(std::move(schema));
  const auto tokenizer = schema_->open();
  vocabulary_size_ = tokenizer->vocabulary_size();
  targets_ = TargetVocabulary::for_tokenizer(*tokenizer);
  const auto length = static_cast<std::size_t>(schema_->length);
  const auto target_length = static_cast<std::size_t>(schema_->target_length);
  std::vector<std::string> words;
  for_each_field(
      files_, columns_of(*schema_, options_.without_labels),
      [&](std::size_t number, std::string_view field) {
        if (number == 0 && is_missing(field)) ++missing_;
        if (number == 0)
          add_text(whole_text(
              *tokenizer,
              is_pairs() ? encode_nonempty(*tokenizer, field) : tokenizer->encode(field), length));
        else if (is_pairs())
          add_text(target_tokens(*tokenizer, field, target_length));
        else if (lacks_label(*schema_, field))
          fail_label(files_, *schema_, field);
        else
          words.emplace_back(field);
      });
  require_rows(!own_ends_.empty());
  number_classes(words);
  tokens_ = own_tokens_;
  ends_ = own_ends_;
  labels_ = own_labels_;
  set_info();
}

void TextTableSource::add_text(const TextTokens& text) {
  own_tokens_.insert(own_tokens_.end(), text.tokens.begin(), text.tokens.end());
  own_ends_.push_back(own_tokens_.size());
  if (text.is_cut) ++cut_;
}

void TextTableSource::number_classes(const std::vector<std::string>& words) {
  std::vector<std::string>& names = info_.class_names;
  names = words;
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  if (names.size() > CsvReader::kMaxValues)
    throw Error(ErrorCategory::data, files_.front().string(),
                fmt::format("expected at most {} classes in the column {}", CsvReader::kMaxValues,
                            schema_->label),
                fmt::format("got {}", names.size()));
  const auto number = [](const std::string& word) { return parse_number<std::int64_t>(word); };
  if (std::ranges::all_of(names, [&](const auto& word) { return number(word).has_value(); }))
    std::ranges::stable_sort(names, {}, [&](const auto& word) { return *number(word); });
  std::unordered_map<std::string_view, std::int32_t> numbers;
  for (const std::string& name : names)
    numbers.emplace(name, static_cast<std::int32_t>(numbers.size()));
  for (const std::string& word : words) own_labels_.push_back(numbers.at(word));
}

void TextTableSource::set_info() {
  const auto tensor = [&](const char* name, std::int64_t length, std::int64_t classes) {
    return TensorSpec{
        .name = name, .type = ElementType::int32, .shape = {length}, .classes = classes};
  };
  const std::int64_t length = schema_->length;
  if (is_pairs()) {
    info_.spec = {
        .inputs = {tensor("source", length, vocabulary_size_), tensor("source_segments", length, 0),
                   tensor("tokens", schema_->target_length, targets_.size)},
        .targets = {tensor("next", schema_->target_length, targets_.size)}};
  } else {
    info_.spec = {
        .inputs = {tensor("tokens", length, vocabulary_size_), tensor("segments", length, 0)}};
    if (!info_.class_names.empty())
      info_.spec.targets = {{.name = "label",
                             .type = ElementType::int32,
                             .shape = {},
                             .classes = std::ssize(info_.class_names)}};
  }
  info_.size = std::ssize(ends_) / (is_pairs() ? 2 : 1);
  info_.preparation =
      fmt::format(", tokenizer {} ({} tokens, {}), {}{}{}", schema_->name(), vocabulary_size_,
                  schema_->hash, counted(length, "position"),
                  is_pairs() ? fmt::format(" and {} of targets", schema_->target_length) : "",
                  cut_ == 0 ? "" : fmt::format(", {} cut", counted(cut_, "longer text")));
  info_.description = fmt::format(
      "{} of {}{}{}", counted(info_.size, is_pairs() ? "pair" : "text"),
      files_.size() == 1 ? files_.front().string() : counted(std::ssize(files_), "table"),
      missing_ == 0 ? "" : fmt::format(", {} missing (empty, NA, ?), read as written", missing_),
      info_.preparation);
  info_.text = schema_;
}

NodeData TextTableSource::data() const {
  return {pack_json({{"schema", schema_->to_json()},
                     {"vocabulary_size", vocabulary_size_},
                     {"begin", targets_.begin},
                     {"end", targets_.end},
                     {"target_size", targets_.size},
                     {"cut", cut_},
                     {"missing", missing_},
                     {"class_names", encode_strings(info_.class_names)}}),
          {std::as_bytes(tokens_), std::as_bytes(ends_), std::as_bytes(labels_)}};
}

void TextTableSource::use(const NodeData& data, SharedSegment memory) {
  const auto described = unpack_json(data.description);
  auto schema = TextSchema::from_checkpoint(described.at("schema"), files_.front().string());
  if (schema_) schema.adopt(schema_->content);  // content from the member that has read the files
  schema_ = std::make_shared<const TextSchema>(std::move(schema));
  vocabulary_size_ = described.at("vocabulary_size");
  targets_ = {.begin = described.at("begin"),
              .end = described.at("end"),
              .size = described.at("target_size")};
  cut_ = described.at("cut");
  missing_ = described.at("missing");
  info_.class_names = decode_strings(described.at("class_names")).get<std::vector<std::string>>();
  tokens_ = data.array<std::int32_t>(0);
  ends_ = data.array<std::uint64_t>(1);
  labels_ = data.array<std::int32_t>(2);
  own_tokens_ = {};
  own_ends_ = {};
  own_labels_ = {};
  set_info();
  memory_ = std::move(memory);
}

std::span<const std::int32_t> TextTableSource::text(std::size_t number) const {
  const std::size_t begin = number == 0 ? 0 : ends_[number - 1];
  return tokens_.subspan(begin, ends_[number] - begin);
}

void TextTableSource::read(std::int64_t record_id, Sample& sample) const {
  const auto record = static_cast<std::size_t>(record_id);
  const auto whole = text(is_pairs() ? 2 * record : record);
  const auto tokens = sample.inputs[0].as<std::int32_t>();
  const auto segments = sample.inputs[1].as<std::int32_t>();
  std::ranges::copy(whole, tokens.begin());
  std::ranges::fill(tokens.subspan(whole.size()), 0);
  std::ranges::fill(segments.first(whole.size()), 1);
  std::ranges::fill(segments.subspan(whole.size()), 0);
  if (is_pairs())
    write_target(text(2 * record + 1), targets_, sample.inputs[2].as<std::int32_t>(),
                 sample.targets[0].as<std::int32_t>());
  else if (!spec().targets.empty())
    sample.label() = labels_[record];
}

}  // namespace lockstep::inline v0::data
