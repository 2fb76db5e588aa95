// Writes TFRecord files of JPEG images with the average size of ImageNet's and the features of its
// records, for scripts/gpu_check.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/data/record/example.h"
#include "lockstep/data/record/tfrecord.h"
#include "tests/bench/photograph.h"

namespace {

using namespace lockstep;

struct Options {
  std::filesystem::path directory;
  int files = 4;
  int records = 1024;  // total over all files
  int height = 375;
  int width = 500;
  int classes = 1000;
};

// Number of different images; encoding more takes longer than decoding.
constexpr int kDifferent = 64;

void write_records(const Options& options) {
  std::filesystem::create_directories(options.directory);
  std::vector<std::string> images;
  for (int i = 0; i < kDifferent; ++i) {
    const auto bytes =
        bench::photograph(options.height, options.width, static_cast<std::uint64_t>(i + 1));
    images.emplace_back(bytes.begin(), bytes.end());
  }
  for (int file = 0; file < options.files; ++file) {
    data::TFRecordWriter writer(options.directory / fmt::format("train-{:05}.tfrecord", file));
    for (int record = file; record < options.records; record += options.files)
      writer.write(data::serialize_example(
          {{"image/encoded", data::BytesList{images[record % kDifferent]}},
           {"image/class/label", data::Int64List{record % options.classes}}}));
    writer.close();
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Writes TFRecord files of made-up JPEG images.", "lockstep_bench_jpeg_records");
  app.add_option("directory", options.directory, "Where the files go")->required();
  app.add_option("--files", options.files)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--records", options.records, "Records of all files")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--height", options.height)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--width", options.width)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--classes", options.classes)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    write_records(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep_bench_jpeg_records: error: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
