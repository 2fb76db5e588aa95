// lockstep data benchmark: reading rates with parts of the work omitted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/sample/record_source.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace lockstep::inline v0::apps {

/// Requests the system to drop the pages of `file` from the page cache, after writing modified ones
/// to the disk. Returns the share of its bytes that stays in memory, 0 to 1: pages in use by other
/// readers, and those of file systems in memory, are not dropped. Throws Error (data) if the file
/// cannot be read.
double drop_from_page_cache(const std::filesystem::path& file);

// Sources that omit a part of the work of reading a data set. The difference of two rates is the
// cost of that part.

/// Samples without any reading or decoding.
class BlankSource final : public data::RecordSource {
 public:
  BlankSource(data::SampleSpec spec, std::int64_t records)
      : RecordSource({.spec = std::move(spec), .size = records, .description = "nothing"}) {}
  void read(std::int64_t, data::Sample&) const override {}
};

/// The first records of another source, which must outlive this one.
class FirstRecords final : public data::RecordSource {
 public:
  /// `records` from 1 to the size of `source`. Its files are those that contain
  /// these records; they determine the record order and the prefetching.
  FirstRecords(const data::RecordSource& source, std::int64_t records);
  void read(std::int64_t record_id, data::Sample& sample) const override {
    source_.read(record_id, sample);
  }
  void will_need(data::Range record_ids) const override { source_.will_need(record_ids); }
  void prefetch(std::int64_t record_id) const override { source_.prefetch(record_id); }

 private:
  const data::RecordSource& source_;
};

/// The decoded samples of one epoch of a batched data set, in memory.
class DecodedSamples final : public data::RecordSource {
 public:
  explicit DecodedSamples(const data::Dataset& dataset);
  void read(std::int64_t record_id, data::Sample& sample) const override;

 private:
  data::Batch samples_;
};

/// The first records of TFRecord files as stored, in memory. Reading a record decodes it.
class StoredRecords final : public data::RecordSource {
 public:
  /// `source` must outlive this object. `records`: from 1 to its size.
  StoredRecords(const data::TFRecordSource& source, std::int64_t records);
  void read(std::int64_t record_id, data::Sample& sample) const override;

 private:
  const data::TFRecordSource& source_;
  std::vector<std::string> records_;
};

struct DataBenchmarkOptions {
  DataArguments data;
  OutputArguments output;
  double seconds = 2;  ///< duration of each measurement
};

/// The rate of one stage, which omits parts of the work.
struct DataRate {
  std::string stage;  ///< synthetic, decoded, stored, warm or cold
  int threads = 1;
  std::int64_t records = 0;
  double seconds = 0;
  double bytes_per_record = 0;  ///< size of a sample if nothing is read, else of a stored record

  double records_per_second() const { return static_cast<double>(records) / seconds; }
  double megabytes_per_second() const { return records_per_second() * bytes_per_record / 1e6; }
};

/// The part of the work that takes most of a record's time.
struct DataLimit {
  /// Batching, copying, decoding, reading, or "reading and decoding" (not separable).
  std::string_view stage;
  double share = 0;  ///< share of the time per record with warm files, 0 to 1
};

/// Computed from the differences in time per record between consecutive stages. `rates` contains
/// synthetic, decoded, stored (if measured) and warm, all with the same number of threads.
DataLimit find_limit(std::span<const DataRate> rates);

/// Measures the rates one after the other, prints each one, then prints the bottleneck. Throws
/// Error.
void benchmark_data(const DataBenchmarkOptions& options);

}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

template <>
struct Fields<apps::DataBenchmarkOptions> {
  static constexpr std::tuple list{Part{&apps::DataBenchmarkOptions::data},
                                   Field{&apps::DataBenchmarkOptions::seconds,
                                         {"seconds", "Output", "Seconds to measure each rate"},
                                         {.min = 0.001},
                                         {.value = "SECONDS"}}};
};

}  // namespace lockstep::inline v0
