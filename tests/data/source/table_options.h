// Parses the options of a table, as after the file in --data.
#pragma once

#include <string>

#include "lockstep/data/source/file_options.h"

namespace lockstep::data {

inline CsvOptions table_options(const std::string& text, const std::string& where) {
  return CsvSpec::parse("/dev/null:" + text, where).options;
}

}  // namespace lockstep::data
