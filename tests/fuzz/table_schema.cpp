#include "lockstep/data/table/schema.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/json/json.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

/// A schema may have up to TableSchema::kMaxFeatures floats in each row, and a name for each, which
/// costs more memory than the size of the file allows.
bool is_wide(const data::TableSchema& schema) {
  constexpr std::int64_t kMaxWidth = 1 << 14;
  std::int64_t width = 0;
  for (const data::TableFeature& feature : schema.features) width += feature.width();
  return width > kMaxWidth;
}

}  // namespace

void read_untrusted(Bytes bytes) {
  using data::TableSchema;
  const std::string text = "a,b,k\n1,red,0\n2020-02-29,x|y,1\n-3,,2\n";
  const MemoryFile table({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  const auto read_as = [&](const data::CsvOptions& options) {
    const data::CsvSource source(table.path(), options);
    data::Batch one(source.spec());
    data::Sample sample = one.sample();
    for (std::int64_t i = 0; i < source.size(); ++i) source.read(i, sample);
  };
  const MemoryFile file(bytes);
  tolerate(ErrorCategory::input, [&] {
    try {
      if (is_wide(TableSchema::from_file(file.path()))) return;
      read_as({.missing = data::MissingValues{data::MissingValues::Rule::mean},
               .features = file.path()});
    } catch (const Error& error) {
      if (error.category() != ErrorCategory::data) throw;
    }
  });
  tolerate(ErrorCategory::checkpoint, [&] {
    const auto stored = parse_json(text_of(bytes), ErrorCategory::checkpoint, "state.json");
    const auto schema =
        std::make_shared<const TableSchema>(TableSchema::from_checkpoint(stored, "state.json"));
    if (is_wide(*schema)) return;
    read_as({.schema = schema, .may_lack_labels = true});
  });
}

}  // namespace lockstep::inline v0::fuzz
