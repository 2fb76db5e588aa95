// Reads a CSV table as shuffled batches of one epoch, as a training does. Prints one line of JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/record/mapped_file.h"

namespace {

struct Options {
  std::filesystem::path file;
  std::string label;
  std::filesystem::path features;
  std::int64_t batch = 512;
};

void measure(const Options& options) {
  using namespace lockstep::data;
  const auto start = std::chrono::steady_clock::now();
  const Dataset table =
      Dataset::from_csv(options.file, {.label = options.label, .features = options.features})
          .shuffle()
          .batch(options.batch);
  const double open_seconds = lockstep::seconds_since(start);
  const auto stream = table.stream({.last_step = table.steps_per_epoch()});
  std::int64_t samples = 0;
  for (std::vector<Batch> parts; stream->next(parts);) samples += parts.front().samples;
  const double seconds = lockstep::seconds_since(start);
  const auto bytes = static_cast<double>(std::filesystem::file_size(options.file));
  fmt::print(R"({{"samples":{},"bytes":{:.0f},"open_seconds":{:.3f},"seconds":{:.3f}}})"
             "\n",
             samples, bytes, open_seconds, seconds);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures the way from a table to its batches.", "lockstep_bench_table");
  app.add_option("file", options.file, "The table")->required();
  app.add_option("--label", options.label, "Its column of classes")->required();
  app.add_option("--features", options.features, "Its features file");
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  lockstep::data::enable_mapped_files();  // as the program does
  try {
    measure(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
