// Tables for tests: written to a file, and read with the options that follow it in --data.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "lockstep/data/source/csv/csv_source.h"
#include "lockstep/data/source/file_options.h"
#include "lockstep/data/table/schema.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {

/// Parses the options of a table, as after the file in --data.
inline CsvOptions table_options(const std::string& text, const std::string& where) {
  return CsvSpec::parse("/dev/null:" + text, where).options;
}

/// A table in a temporary directory.
class CsvFixture : public ::testing::Test {
 protected:
  /// Numbers are unscaled, unless the options set a scale, and kinds of columns are not inferred.
  CsvSource open(const std::string& text, CsvOptions options = {}) const {
    write_bytes(path_, text);
    options.infers = false;
    if (!options.scale) options.scale = ColumnScale::none;
    return CsvSource(path_, options);
  }
  std::string error(const std::string& text, const CsvOptions& options = {}) const {
    return data_error_of([&] { open(text, options); });
  }
  std::string input_error(const std::string& text, const CsvOptions& options) const {
    return input_error_of([&] { open(text, options); });
  }
  std::string at(const std::string& place) const {
    return "[" + path_.string() + ": " + place + "] ";
  }
  std::string file_prefix() const { return "[" + path_.string() + "] "; }

  static constexpr const char* kNumberForm =
      "expected a number such as 1234.5: a decimal point, and no other separators or units";
  static constexpr const char* kFruit =
      "color,size,kind\n"
      "red,5,apple\n"
      "green,6,pear\n"
      "yellow,4,apple\n";

  const TemporaryDirectory directory_;
  const std::filesystem::path path_ = directory_ / "table.csv";
};

}  // namespace lockstep::inline v0::data
