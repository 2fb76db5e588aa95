#include "data/record/record_error.h"
#include "data/record/record_file.h"
#include "data/record/record_index.h"
#include "data/record/tfrecord_reader.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

void read_untrusted(Bytes bytes) {
  using namespace lockstep::data;
  const MemoryFile file(bytes);
  TFRecordReader reader(file.path());
  bool more = true;
  for (std::string_view record; more;) {
    try {
      more = reader.next(record);
    } catch (const RecordError&) {  // it may go on behind a damaged record
    }
  }
  const RecordFile records(file.path());
  const RecordIndex index = build_record_index(records);
  ReadWindow window;
  for (std::int64_t i = 0; i < index.records(); ++i)
    records.record(i, index.offsets[static_cast<std::size_t>(i)], index.length(i), window);
}

}  // namespace lockstep::fuzz
