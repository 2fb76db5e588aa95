// Tables of numbers, such as Fisher's Iris.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/sample.h"

namespace lockstep::data {

/// A comma-separated file, kept in memory. The last column is the label, a class number from 0; the others are
/// features, [F]. A first line with anything but numbers in it is a header and is passed over, as are empty lines.
/// Classes: the highest label plus one.
class CsvSource final : public RecordSource {
 public:
  /// Throws Error (data) with file, line and column for anything that is not a finite number, for a label that is not a
  /// class number, for a row with another number of columns than the first; and for a file without rows.
  explicit CsvSource(const std::filesystem::path& file);

  const SampleSpec& spec() const override { return spec_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::string description() const override { return file_.string(); }

 private:
  void add_row(const std::vector<std::string_view>& fields, std::int64_t line);

  std::filesystem::path file_;
  SampleSpec spec_;
  std::vector<float> features_;  // [N, F]
  std::vector<std::int32_t> labels_;
};

}  // namespace lockstep::data
