// Reading records from the page cache, compared with plain reads of the same pages. One thread.
// Files are in a temporary directory below TMPDIR, or kept in LOCKSTEP_BENCH_RECORDS for other
// programs.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/order/epoch_order.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/record/tfrecord.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace {

using namespace lockstep::data;

constexpr std::size_t kLargeRecord = 100'000;
constexpr int kLargeRecords = 2'000;
constexpr std::size_t kPixels = 784;
constexpr int kImages = 200'000;
constexpr int kSmallRecords = 1'000'000;

/// The files of all benchmarks, deleted after the run unless LOCKSTEP_BENCH_RECORDS names their
/// directory.
class Files {
 public:
  Files() : directory_(given()), is_kept_(!directory_.empty()) {
    if (!is_kept_) directory_ = make_directory();
    write_all();
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  ~Files() {
    std::error_code ignored;
    if (!is_kept_) std::filesystem::remove_all(directory_, ignored);
  }

  std::filesystem::path large() const { return directory_ / "large.tfrecord"; }
  std::filesystem::path images() const { return directory_ / "images.tfrecord"; }
  std::filesystem::path small() const { return directory_ / "small.tfrecord"; }

 private:
  static std::string given() {
    const char* const directory = std::getenv("LOCKSTEP_BENCH_RECORDS");
    return directory == nullptr ? "" : directory;
  }
  static std::string make_directory() {
    std::string name =
        (std::filesystem::temp_directory_path() / "lockstep-records-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    return name;
  }

  void write_all() const {
    std::string bytes(kLargeRecord, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
    write(large(), kLargeRecords, [&](int) { return bytes; });
    write(images(), kImages, [&](int i) {
      return serialize_example(
          {{"image", BytesList{bytes.substr(static_cast<std::size_t>(i) % 1000, kPixels)}},
           {"label", Int64List{i % 10}}});
    });
    write(small(), kSmallRecords,
          [&](int i) { return bytes.substr(static_cast<std::size_t>(i) % 1000, 64); });
  }
  template <typename Record>
  static void write(const std::filesystem::path& path, int records, const Record& record) {
    TFRecordWriter writer(path, Compression::none);
    for (int i = 0; i < records; ++i) writer.write(record(i));
    writer.close();
  }

  std::filesystem::path directory_;
  bool is_kept_;
};

const Files& files() {
  static const Files made;
  return made;
}

void count(benchmark::State& state, std::int64_t records, std::uint64_t bytes) {
  state.SetItemsProcessed(state.iterations() * records);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}

std::vector<std::int64_t> order_of(std::int64_t records, bool shuffled) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(records));
  std::iota(order.begin(), order.end(), 0);
  const Permutation epoch(1, records);
  if (shuffled)
    std::ranges::transform(order, order.begin(), [&](std::int64_t i) { return epoch[i]; });
  return order;
}

/// Baseline: preads of all pages into a buffer of `range` bytes.
void floor_pread(benchmark::State& state, const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string buffer(static_cast<std::size_t>(state.range(0)), '\0');
  for ([[maybe_unused]] auto each : state) {
    off_t at = 0;
    for (ssize_t got = 1; got > 0; at += got)
      got = ::pread(descriptor, buffer.data(), buffer.size(), at);
    benchmark::DoNotOptimize(buffer.data());
  }
  ::close(descriptor);
  count(state, 1, std::filesystem::file_size(path));
}

/// Baseline: memcpy from a mapping that was touched before into a buffer of `range` bytes.
void floor_memcpy(benchmark::State& state, const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::size_t size = std::filesystem::file_size(path);
  void* const mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  ::close(descriptor);
  std::string buffer(static_cast<std::size_t>(state.range(0)), '\0');
  for ([[maybe_unused]] auto each : state) {
    for (std::size_t at = 0; at < size; at += buffer.size()) {
      std::memcpy(buffer.data(), static_cast<const char*>(mapping) + at,
                  std::min(buffer.size(), size - at));
      benchmark::DoNotOptimize(buffer.data());
      benchmark::ClobberMemory();
    }
  }
  ::munmap(mapping, size);
  count(state, 1, size);
}

/// Reads every record of a file sequentially, with both checksums.
void read_stream(benchmark::State& state, const std::filesystem::path& path) {
  std::int64_t records = 0;
  for ([[maybe_unused]] auto each : state) {
    TFRecordReader reader(path);
    for (std::string_view record; reader.next(record);) benchmark::DoNotOptimize(record.data());
    records = reader.records_read();
  }
  count(state, records, std::filesystem::file_size(path));
}

/// Reads every record by the index, with both checksums. First range 1: shuffled; second range 1:
/// mapped.
void read_by_index(benchmark::State& state, const std::filesystem::path& path) {
  RecordFile file(path);
  enable_mapped_files();
  if (state.range(1) != 0) file.map();
  const RecordIndex index = build_record_index(file);
  const auto order = order_of(index.records(), state.range(0) != 0);
  ReadWindow window;
  for ([[maybe_unused]] auto each : state) {
    for (const std::int64_t record : order) {
      const std::uint64_t offset = index.offsets[static_cast<std::size_t>(record)];
      benchmark::DoNotOptimize(file.record(record, offset, index.length(record), window).data());
    }
  }
  count(state, index.records(), file.size());
}

/// Computes the checksum of every record in a mapping instead of pread. First range 1: shuffled;
/// second range 1: mapped again for each pass, so that every page faults.
void read_mapped(benchmark::State& state, const std::filesystem::path& path) {
  const RecordFile file(path);
  const RecordIndex index = build_record_index(file);
  const auto order = order_of(index.records(), state.range(0) != 0);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto map = [&] {
    return ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, descriptor, 0);
  };
  void* mapping = map();
  const auto pass = [&] {
    const std::string_view bytes(static_cast<const char*>(mapping), file.size());
    for (const std::int64_t record : order) {
      const std::size_t data = index.offsets[static_cast<std::size_t>(record)] + kRecordHeaderBytes;
      const std::uint64_t length = index.length(record);
      benchmark::DoNotOptimize(
          data_intact(bytes.substr(data, length), bytes.substr(data + length)));
    }
  };
  pass();
  for ([[maybe_unused]] auto each : state) {
    if (state.range(1) != 0) {
      ::munmap(mapping, file.size());
      mapping = map();
    }
    pass();
  }
  ::munmap(mapping, file.size());
  ::close(descriptor);
  count(state, index.records(), file.size());
}

/// Reads, checks and parses pixels and label of every image; range 1: shuffled.
void read_images(benchmark::State& state) {
  enable_mapped_files();
  const TFRecordSource source({files().images()}, {.input_shape = {28, 28, 1}, .classes = 10},
                              "images");
  const auto order = order_of(source.size(), state.range(0) != 0);
  Batch one(source.spec(), 1, true);
  Sample sample = one.sample();
  for ([[maybe_unused]] auto each : state) {
    for (const std::int64_t record : order) {
      source.read(record, sample);
      benchmark::DoNotOptimize(sample.pixels().data());
    }
  }
  count(state, source.size(), std::filesystem::file_size(files().images()));
}

/// Parses records in memory, without reading or checksums.
void parse_images(benchmark::State& state) {
  std::vector<std::string> records;
  TFRecordReader reader(files().images());
  for (std::string_view record; records.size() < 1000 && reader.next(record);)
    records.emplace_back(record);
  const SampleSpec spec = SampleSpec::classification({28, 28, 1}, 10);
  const ExampleDecoder decoder(spec, InputKind::pixels, {"image", "label"});
  Batch one(spec, 1, true);
  Sample sample = one.sample();
  for ([[maybe_unused]] auto each : state) {
    for (const std::string& record : records) {
      benchmark::DoNotOptimize(decoder.decode(record, sample));
    }
  }
  count(state, static_cast<std::int64_t>(records.size()), records.size() * records[0].size());
}

/// Parses records in memory with the reader of selected features.
void parse_features(benchmark::State& state) {
  std::vector<std::string> records;
  TFRecordReader file(files().images());
  for (std::string_view record; records.size() < 1000 && file.next(record);)
    records.emplace_back(record);
  const ExampleReader reader({{"image", FeatureKind::bytes}, {"label", FeatureKind::int64s}});
  ExampleValues values;
  for ([[maybe_unused]] auto each : state) {
    for (const std::string& record : records) {
      reader.read(record, values, [] { return std::string("a record"); });
      benchmark::DoNotOptimize(values.bytes(0).data());
    }
  }
  count(state, static_cast<std::int64_t>(records.size()), records.size() * records[0].size());
}

void build_index(benchmark::State& state, const std::filesystem::path& path) {
  const RecordFile file(path);
  std::int64_t records = 0;
  for ([[maybe_unused]] auto each : state) records = build_record_index(file).records();
  count(state, records, file.size());
}

void open_indexed(benchmark::State& state, const std::filesystem::path& path) {
  const std::filesystem::path kept = record_index_path(path, {});
  {
    const RecordFile file(path);
    save_record_index(kept, file.version(), build_record_index(file));
  }
  std::int64_t records = 0;
  for ([[maybe_unused]] auto each : state)
    records = load_record_index(kept, RecordFile(path).version())->records();
  count(state, records, 0);
}

BENCHMARK_CAPTURE(floor_pread, large, files().large())->Arg(100 << 10)->Arg(1 << 18)->Arg(1 << 20);
BENCHMARK_CAPTURE(floor_memcpy, large, files().large())->Arg(100 << 10)->Arg(1 << 18)->Arg(1 << 20);
BENCHMARK_CAPTURE(read_stream, large, files().large());
BENCHMARK_CAPTURE(read_by_index, large, files().large())->ArgsProduct({{0, 1}, {0, 1}});
BENCHMARK_CAPTURE(read_mapped, large, files().large())->ArgsProduct({{0, 1}, {0, 1}});
BENCHMARK_CAPTURE(floor_pread, images, files().images())->Arg(1 << 18);
BENCHMARK_CAPTURE(floor_memcpy, images, files().images())->Arg(1 << 18);
BENCHMARK_CAPTURE(read_stream, images, files().images());
BENCHMARK_CAPTURE(read_by_index, images, files().images())->ArgsProduct({{0, 1}, {0, 1}});
BENCHMARK_CAPTURE(read_mapped, images, files().images())->ArgsProduct({{0, 1}, {0, 1}});
BENCHMARK(read_images)->Arg(0)->Arg(1);
BENCHMARK(parse_images);
BENCHMARK(parse_features);
BENCHMARK_CAPTURE(build_index, small, files().small());
BENCHMARK_CAPTURE(build_index, images, files().images());
BENCHMARK_CAPTURE(open_indexed, small, files().small());

}  // namespace

BENCHMARK_MAIN();
