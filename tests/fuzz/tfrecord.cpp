#include <fmt/format.h>
#include <optional>

#include "lockstep/data/record/mapped_file.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/data/record/record_file.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/record/tfrecord.h"
#include "tests/fuzz/fuzz.h"

namespace lockstep::inline v0::fuzz {
namespace {

void read_by_index(const data::RecordFile& records, const data::RecordIndex& index) {
  data::ReadWindow window;
  for (std::int64_t i = 0; i < index.records(); ++i) {
    try {
      records.record(i, index.offsets[static_cast<std::size_t>(i)], index.length(i), window);
    } catch (const data::RecordError&) {  // its data may be damaged
    }
  }
}

}  // namespace

void read_untrusted(Bytes bytes) {
  using namespace lockstep::data;
  const MemoryFile file(bytes);
  TFRecordReader reader(file.path());
  bool more = true;
  for (std::string_view record; more;) {
    try {
      more = reader.next(record);
    } catch (const RecordError&) {  // reading may continue after a damaged record
    }
  }
  RecordFile records(file.path(), RecordFile::PackedDamage::cut);
  std::optional<DamagedFile> damage;
  const RecordIndex index = build_record_index(records, damage);
  LOCKSTEP_CHECK_OP(index.offsets.back(), <=, records.size());
  read_by_index(records, index);
  enable_mapped_files();
  records.map();
  read_by_index(records, index);
  build_record_index(RecordFile(file.path()));
}

}  // namespace lockstep::inline v0::fuzz
