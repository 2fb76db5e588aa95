// Costs of a data set with many files and records: memory, open files, time to open. The files are
// sparse: each has its full length and an index of all records, but only the first record is
// written. Prints one line of JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/data/order/epoch_order.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/record_frame.h"
#include "lockstep/data/record/record_index.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/sample/sample.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"

namespace {

using namespace lockstep;
using namespace lockstep::data;

struct Options {
  std::filesystem::path directory;
  std::int64_t files = 100'000;
  std::int64_t records = 1'000;  // per file
};

constexpr std::uint64_t kRecordBytes = 1'000;

std::filesystem::path path_of(const Options& options, std::int64_t file) {
  return options.directory / fmt::format("{:04}", file / 1000) /
         fmt::format("{:06}.tfrecord", file);
}

void write_file(const std::filesystem::path& path, std::int64_t records) {
  std::string first;
  append_record(first, serialize_example(
                           {{"image", BytesList{std::string(4, 'x')}}, {"label", Int64List{1}}}));
  std::ofstream(path, std::ios::binary).write(first.data(), std::ssize(first));
  RecordIndex index;
  index.offsets.push_back(first.size());
  for (std::int64_t i = 1; i < records; ++i)
    index.offsets.push_back(index.offsets.back() + kRecordBytes);
  std::filesystem::resize_file(path, index.offsets.back());
  save_record_index(record_index_path(path, {}), file_version(path), index);
}

std::vector<std::filesystem::path> write_files(const Options& options) {
  std::vector<std::filesystem::path> paths;
  for (std::int64_t file = 0; file < options.files; ++file) {
    paths.push_back(path_of(options, file));
    std::filesystem::create_directories(paths.back().parent_path());
    write_file(paths.back(), options.records);
  }
  return paths;
}

/// Returns the MiB after `name` in /proc/self/status.
double mebibytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kibibytes = 0;
    if (word == name + ":" && status >> kibibytes) return kibibytes / 1024;
  }
  return 0;
}

std::int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

/// Reads the first record of each file, in a shuffled order.
void read_all_files(const TFRecordSource& source, const Options& options) {
  const Permutation order(1, options.files);
  Batch one(source.spec(), 1, true);
  Sample sample = one.sample();
  for (std::int64_t i = 0; i < options.files; ++i) source.read(order[i] * options.records, sample);
}

void measure(const Options& options) {
  const auto paths = write_files(options);
  const double before = mebibytes("VmRSS");
  auto start = std::chrono::steady_clock::now();
  const TFRecordSource source(paths, {.input_shape = {2, 2, 1}, .classes = 10}, "many files");
  const double open_seconds = seconds_since(start);
  start = std::chrono::steady_clock::now();
  read_all_files(source, options);
  const double read_seconds = seconds_since(start);
  fmt::print(
      R"({{"files":{},"records":{},"open_seconds":{:.2f},"read_microseconds":{:.2f},"descriptors":{},)"
      R"("resident_mib":{:.0f},"resident_mib_before":{:.0f},"most_resident_mib":{:.0f}}})"
      "\n",
      paths.size(), source.size(), open_seconds,
      read_seconds / static_cast<double>(paths.size()) * 1e6, open_descriptors(),
      mebibytes("VmRSS"), before, mebibytes("VmHWM"));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures what a data set of many files costs a process.",
               "lockstep_bench_many_files");
  app.add_option("directory", options.directory, "Where the files go, and stay")->required();
  app.add_option("--files", options.files)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--records", options.records, "Records of each file")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    measure(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
