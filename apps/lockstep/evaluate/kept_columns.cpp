#include "apps/lockstep/evaluate/kept_columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::inline v0::apps {
namespace {

constexpr std::string_view kTable = "csv:";
constexpr const char* kWhere = "--keep-columns";

/// The rows of a table, one after the other.
class Rows {
 public:
  Rows(data::CsvSource::Text table, const std::string& file, char separator,
       std::vector<std::size_t> columns)
      : table_(std::move(table)),
        rows_(table_.text, file, separator, table_.files),
        columns_(std::move(columns)) {
    if (table_.layout.has_header) rows_.next();
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  /// The fields of a row that is after those of the calls before.
  std::vector<std::string> fields(std::int64_t row) {
    for (; next_ <= row; ++next_) rows_.next();
    std::vector<std::string> fields;
    for (const std::size_t column : columns_)
      fields.emplace_back(column < rows_.fields().size() ? rows_.fields()[column] : "");
    return fields;
  }

 private:
  data::CsvSource::Text table_;
  data::CsvRows rows_;
  std::vector<std::size_t> columns_;
  std::int64_t next_ = 0;
};

}  // namespace

CopiedColumns kept_columns(const std::string& names, const std::string& spec,
                           const std::shared_ptr<const data::TableSchema>& schema) {
  CopiedColumns copied;
  if (names.empty()) return copied;
  if (!spec.starts_with(kTable) || !schema || schema->window.rows > 0)
    throw Error(ErrorCategory::input, kWhere,
                "expected a table, csv:FILE, without windows, whose rows are predicted",
                "got " + spec);
  data::CsvSpec table = data::CsvSpec::parse(std::string_view(spec).substr(kTable.size()), spec);
  table.options.schema = schema;
  table.options.may_lack_labels = true;
  auto text = data::CsvSource::text_of(table.file, table.options);
  std::vector<std::size_t> columns;
  std::vector<std::string> given;
  const Spec list = Spec::of_items(kWhere, names);
  for (const SpecItem& item : list.items())
    given.insert(given.end(), item.values.begin(), item.values.end());
  for (const std::string& name : given) {
    const auto column = text.layout.find(name);
    if (!column)
      throw Error(
          ErrorCategory::input, kWhere,
          fmt::format("expected columns of the table: {}", fmt::join(text.layout.names, ", ")),
          fmt::format("got \"{}\"", name));
    if (std::ranges::count(columns, *column) > 0)
      throw Error(ErrorCategory::input, kWhere, "expected each column once",
                  fmt::format("got \"{}\" again", name));
    columns.push_back(*column);
    copied.names.push_back(text.layout.names[*column]);
  }
  const auto rows = std::make_shared<Rows>(std::move(text), table.file.string(),
                                           table.options.separator, std::move(columns));
  copied.fields = [rows](std::int64_t record) { return rows->fields(record); };
  return copied;
}

}  // namespace lockstep::inline v0::apps
