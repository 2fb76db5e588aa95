#include "apps/lockstep/data/data_benchmark.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace lockstep::inline v0::apps {
namespace {

double resident_share(int descriptor, std::size_t size) {
  void* const mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapping == MAP_FAILED) return 1;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  const bool known = ::mincore(mapping, size, pages.data()) == 0;
  ::munmap(mapping, size);
  const auto resident =
      std::ranges::count_if(pages, [](unsigned char state) { return (state & 1) != 0; });
  return known ? static_cast<double>(resident) / static_cast<double>(pages.size()) : 1;
}

}  // namespace

double drop_from_page_cache(const std::filesystem::path& file) {
  const InputFile opened(file);
  ::fdatasync(opened.descriptor());
  ::posix_fadvise(opened.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  const auto size = static_cast<std::size_t>(opened.stamp().size);
  return size == 0 ? 0 : resident_share(opened.descriptor(), size);
}

namespace {

std::size_t bytes_of_one(const data::TensorArray& array) {
  return array.elements * element_bytes(array.type);
}

/// Copies the samples of `part` to the positions of their records.
void place(const std::vector<data::TensorArray>& part, const std::vector<std::int64_t>& records,
           std::vector<data::TensorArray>& all) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    const std::size_t size = bytes_of_one(part[i]);
    for (std::size_t row = 0; row < records.size(); ++row)
      std::memcpy(all[i].bytes.data() + static_cast<std::size_t>(records[row]) * size,
                  part[i].bytes.data() + row * size, size);
  }
}

/// Copies one record of `all` to the memory of a sample.
void copy_record(const std::vector<data::TensorArray>& all, std::int64_t record,
                 const std::vector<data::TensorView>& to) {
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t size = bytes_of_one(all[i]);
    std::memcpy(to[i].data, all[i].bytes.data() + static_cast<std::size_t>(record) * size, size);
  }
}

}  // namespace

FirstRecords::FirstRecords(const data::RecordSource& source, std::int64_t records)
    : RecordSource(source.info()), source_(source) {
  LOCKSTEP_CHECK(records >= 1 && records <= source.size());
  info_.size = records;
  std::int64_t left = records;
  std::size_t used = 0;
  for (; used < info_.files.size() && left > 0; ++used) {
    data::StoredFile& file = info_.files[used];
    if (file.records > left) {
      file.bytes =
          static_cast<std::int64_t>(static_cast<double>(file.bytes) * static_cast<double>(left) /
                                    static_cast<double>(file.records));
      file.records = left;
    }
    left -= file.records;
  }
  info_.files.resize(used);
}

DecodedSamples::DecodedSamples(const data::Dataset& dataset)
    : RecordSource(
          {.spec = dataset.spec(), .size = dataset.size(), .description = "decoded samples"}),
      samples_(spec(), size()) {
  const auto stream = dataset.stream({.last_step = dataset.steps_per_epoch()});
  for (std::vector<data::Batch> parts; stream->next(parts);) {
    const data::Batch& batch = parts.front();
    place(batch.inputs, batch.record_ids, samples_.inputs);
    place(batch.targets, batch.record_ids, samples_.targets);
  }
}

void DecodedSamples::read(std::int64_t record_id, data::Sample& sample) const {
  copy_record(samples_.inputs, record_id, sample.inputs);
  copy_record(samples_.targets, record_id, sample.targets);
}

StoredRecords::StoredRecords(const data::TFRecordSource& source, std::int64_t records)
    : RecordSource({.spec = source.spec(),
                    .size = records,
                    .description = "stored records",
                    .has_images = source.info().has_images,
                    .has_encoded_images = source.info().has_encoded_images}),
      source_(source) {
  for (std::int64_t record = 0; record < records; ++record)
    records_.push_back(source.stored(record));
}

void StoredRecords::read(std::int64_t record_id, data::Sample& sample) const {
  if (const auto problem = source_.decoder().decode(records_[record_id], sample)) {
    throw Error(ErrorCategory::data,
                "record " + std::to_string(record_id) + " of " + source_.info().description,
                problem->expected, problem->actual);
  }
}

namespace {

constexpr std::int64_t kMaxSampleBytes = std::int64_t{1} << 28;  // kept decoded in memory
constexpr std::int64_t kRecordsWeighed = 1000;
constexpr double kHonouredShare =
    0.05;  // the file counts as dropped if at most this share of its pages stays

std::string_view meaning(std::string_view stage) {
  if (stage == "synthetic") return "synthetic: nothing read or decoded";
  if (stage == "decoded") return "decoded: samples in memory";
  if (stage == "stored") return "stored: records in memory, decoded";
  if (stage == "warm") return "warm: read from the page cache";
  return "cold: read from the disk";
}

/// Reads shuffled batches of `dataset` for `options.seconds`. `once`: at most one epoch, and the
/// first batch is timed.
DataRate time_batches(const data::Dataset& dataset, const DataBenchmarkOptions& options,
                      int threads, bool once) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  const data::Dataset batches = dataset.shuffle().batch(options.data.global_batch);
  const auto stream = batches.stream({.last_step = once ? batches.steps_per_epoch() : -1,
                                      .prefetch = options.data.read.prefetch,
                                      .threads = threads});
  std::vector<data::Batch> parts;
  if (!once) {
    stream->next(parts);
    start = Clock::now();
  }
  DataRate rate{.stage = {}, .threads = threads};
  while (rate.seconds < options.seconds && stream->next(parts)) {
    rate.records += parts.front().samples;
    rate.seconds = seconds_since(start);
  }
  return rate;
}

double mean_bytes(const data::TFRecordSource& source, std::int64_t records) {
  const std::int64_t weighed = std::min(records, kRecordsWeighed);
  double bytes = 0;
  for (std::int64_t record = 0; record < weighed; ++record)
    bytes += static_cast<double>(source.stored(record).size());
  return bytes / static_cast<double>(weighed);
}

/// 1, 2, 4, … and `cores`.
std::vector<int> thread_counts(int cores) {
  std::vector<int> counts;
  for (int count = 1; count < cores; count *= 2) counts.push_back(count);
  counts.push_back(cores);
  return counts;
}

/// Decoded samples are kept in arrays.
data::Dataset checked_sizes(data::Dataset dataset) {
  data::check_fixed_sizes(dataset.spec().inputs, "benchmark");
  data::check_fixed_sizes(dataset.spec().targets, "benchmark");
  return dataset;
}

class DataBenchmark {
 public:
  explicit DataBenchmark(const DataBenchmarkOptions& options)
      : options_(options),
        threads_(std::max(options.data.read.data_threads, 1)),
        dataset_(checked_sizes(open_dataset(options.data, options.data.data, "train", 1))),
        files_(dynamic_cast<const data::TFRecordSource*>(&dataset_.source())),
        sample_bytes_((dataset_.spec().feature_count() + dataset_.spec().target_count()) *
                      static_cast<std::int64_t>(sizeof(float))),
        records_(std::clamp(kMaxSampleBytes / sample_bytes_, std::int64_t{1}, dataset_.size())),
        stored_bytes_(files_ == nullptr ? static_cast<double>(sample_bytes_)
                                        : mean_bytes(*files_, records_)) {}

  void run() {
    print_head();
    const data::Dataset warm = over(std::make_shared<FirstRecords>(dataset_.source(), records_));
    add("synthetic",
        data::Dataset::from_source(std::make_shared<BlankSource>(warm.spec(), records_)), threads_);
    // This reads all measured records, so the files are in the page cache from here on.
    add("decoded",
        data::Dataset::from_source(
            std::make_shared<DecodedSamples>(warm.batch(options_.data.global_batch))),
        threads_);
    if (files_ != nullptr)
      add("stored", over(std::make_shared<StoredRecords>(*files_, records_)), threads_);
    add("warm", warm, threads_);
    const DataLimit limit = find_limit(rates_);
    for (const int count : thread_counts(available_cores()))
      if (count != threads_) add("warm", warm, count);
    if (files_ != nullptr) measure_cold(warm);
    print_limit(limit);
  }

 private:
  /// A data set that reads `source` with the preprocessing of `dataset_`.
  data::Dataset over(std::shared_ptr<const data::RecordSource> source) const {
    const data::Dataset stored = data::Dataset::from_source(std::move(source));
    return prepared(stored, options_.data.images.value_or(kImagesAsStored), "train");
  }

  void add(const char* stage, const data::Dataset& dataset, int threads, bool once = false) {
    DataRate rate = time_batches(dataset, options_, threads, once);
    rate.stage = stage;
    const bool reads_nothing = rate.stage == "synthetic" || rate.stage == "decoded";
    rate.bytes_per_record = reads_nothing ? static_cast<double>(sample_bytes_) : stored_bytes_;
    print(rate);
    rates_.push_back(std::move(rate));
  }

  void measure_cold(const data::Dataset& warm) {
    const auto files = files_->unpacked_files(records_);
    double resident = 0;
    files_->release_pages();
    for (const auto& file : files) resident = std::max(resident, drop_from_page_cache(file));
    if (files.empty())
      return note(
          "compressed files are decompressed before their first record is read; cold reading was "
          "not measured");
    if (resident > kHonouredShare)
      return note(
          fmt::format("the system kept {:.0f} % of a file in the page cache after a request to "
                      "drop it; cold reading was not measured",
                      100 * resident));
    add("cold", warm, threads_, true);
  }

  void print_head() const {
    if (options_.output.json || options_.output.quiet) return;
    fmt::print("{}: {} records", printable(dataset_.description()), dataset_.size());
    if (records_ < dataset_.size()) fmt::print(", of which the first {} are measured", records_);
    fmt::print("; shuffled, batches of {}\n{:<40} {:>7} {:>13} {:>10}\n",
               options_.data.global_batch, "rate", "threads", "records/s", "MB/s");
  }

  void print(const DataRate& rate) const {
    if (options_.output.json) {
      const nlohmann::ordered_json event = {{"event", "data_rate"},
                                            {"stage", rate.stage},
                                            {"threads", rate.threads},
                                            {"records", rate.records},
                                            {"seconds", rate.seconds},
                                            {"records_per_second", rate.records_per_second()},
                                            {"megabytes_per_second", rate.megabytes_per_second()}};
      fmt::print("{}\n", dump_json(event));
    } else if (!options_.output.quiet) {
      fmt::print("{:<40} {:>7} {:>13.0f} {:>10.1f}\n", meaning(rate.stage), rate.threads,
                 rate.records_per_second(), rate.megabytes_per_second());
    }
    std::fflush(stdout);
  }

  void note(const std::string& text) const {
    if (options_.output.json)
      fmt::print("{}\n", dump_json(nlohmann::ordered_json{{"event", "data_note"}, {"text", text}}));
    else
      fmt::print("{}\n", printable(text));
  }

  void print_limit(const DataLimit& limit) const {
    if (options_.output.json)
      fmt::print("{}\n", dump_json(nlohmann::ordered_json{{"event", "data_limit"},
                                                          {"stage", limit.stage},
                                                          {"threads", threads_},
                                                          {"share", limit.share}}));
    else
      fmt::print("bottleneck with warm files and {}: {}, {:.0f} % of a record's time\n",
                 counted(threads_, "thread"), limit.stage, 100 * limit.share);
  }

  DataBenchmarkOptions options_;
  int threads_;
  data::Dataset dataset_;
  const data::TFRecordSource* files_;  // null: the records are in memory or generated
  std::int64_t sample_bytes_;
  std::int64_t records_;
  double stored_bytes_;
  std::vector<DataRate> rates_;
};

}  // namespace

DataLimit find_limit(std::span<const DataRate> rates) {
  const auto seconds_of = [&](std::string_view stage) -> std::optional<double> {
    const auto rate = std::ranges::find(rates, stage, &DataRate::stage);
    return rate == rates.end() ? std::nullopt : std::optional(1 / rate->records_per_second());
  };
  const double synthetic = seconds_of("synthetic").value();
  const double decoded = seconds_of("decoded").value();
  const double warm = seconds_of("warm").value();
  std::vector<DataLimit> parts = {{"batching", synthetic}, {"copying", decoded - synthetic}};
  if (const auto stored = seconds_of("stored")) {
    parts.push_back({"decoding", *stored - decoded});
    parts.push_back({"reading", warm - *stored});
  } else {
    parts.push_back({"reading and decoding", warm - decoded});
  }
  DataLimit limit = *std::ranges::max_element(parts, {}, &DataLimit::share);
  limit.share = std::min(limit.share / warm, 1.0);
  return limit;
}

void benchmark_data(const DataBenchmarkOptions& options) {
  require_given("--data", options.data.data);
  DataBenchmark(options).run();
}

}  // namespace lockstep::inline v0::apps
