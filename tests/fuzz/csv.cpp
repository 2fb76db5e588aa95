#include "lockstep/base/error.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/source/csv/csv_source.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {

void read_untrusted(Bytes bytes) {
  const MemoryFile file(bytes);
  const auto read_as = [&](const data::CsvOptions& options) {
    const data::CsvSource source(file.path(), options);
    data::Batch one(source.spec());
    data::Sample sample = one.sample();
    for (std::int64_t i = 0; i < source.size(); ++i) source.read(i, sample);
  };
  try {
    read_as({.header = data::CsvHeader::no,
             .categorical = {"1"},
             .unknown_column = true,
             .like = file.path()});
  } catch (const Error&) {  // the table may still be numeric
  }
  try {
    read_as({.targets = {"2"}});
  } catch (const Error&) {
  }
  try {
    read_as({.targets = {"1"}, .window = 2, .horizon = 0, .steps = 2, .series = "2"});
  } catch (const Error&) {
  }
  try {
    read_as({.separator = ';'});
  } catch (const Error&) {
  }
  read_as({});
}

}  // namespace lockstep::inline v0::fuzz
