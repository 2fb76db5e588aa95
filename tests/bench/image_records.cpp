// Images per second from TFRecord files to batches of a network's input, and of a plain loop over
// libjpeg-turbo: one side per run, so that a caller can alternate them.
#include <sys/resource.h>

#include <cstddef>  // required by jpeglib.h
#include <cstdio>

#include <jpeglib.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/record/example.h"
#include "lockstep/data/record/mapped_file.h"
#include "lockstep/data/record/tfrecord.h"

namespace {

using namespace lockstep;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string side;
  std::filesystem::path directory;
  std::filesystem::path index_dir;
  std::string recipe = "cifar10-train";
  std::string feature = "image/encoded";
  std::int64_t batch = 128;
  int threads = 1;
  double seconds = 2;
  bool in_order = false;
};

/// Processor time of all threads of this process, with system time.
double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Measurement {
  std::int64_t images = 0;
  double seconds = 0;
  double processor_seconds = 0;
};

/// The first fifth of the time is warm-up.
Measurement measure_pipeline(const Options& options) {
  data::enable_mapped_files();
  const auto dataset =
      data::Dataset::from_tfrecords((options.directory / "train-*.tfrecord").string(),
                                    {.index_dir = options.index_dir})
          .images(data::ImageRecipe::parse(options.recipe));
  const auto stream =
      (options.in_order ? dataset : dataset.shuffle())
          .batch(options.batch)
          .stream({.prefetch = 4, .threads = options.threads, .pixels = options.side == "pixels"});
  std::vector<data::Batch> parts;
  for (const auto start = Clock::now(); seconds_since(start) < options.seconds / 5;)
    stream->next(parts);
  Measurement result;
  const double processor = processor_seconds();
  for (const auto start = Clock::now(); result.seconds < options.seconds;
       result.seconds = seconds_since(start)) {
    stream->next(parts);
    result.images += parts.front().samples;
  }
  result.processor_seconds = processor_seconds() - processor;
  return result;
}

std::vector<std::string> encoded_images(const Options& options) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("train-") && name.ends_with(".tfrecord")) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  const data::ExampleReader reader({{options.feature, data::FeatureKind::bytes}});
  data::ExampleValues values;
  std::vector<std::string> images;
  for (const auto& file : files) {
    data::TFRecordReader records(file);
    for (std::string_view record; records.next(record);) {
      reader.read(record, values, [&] { return file.string(); });
      images.emplace_back(values.bytes(0).front());
    }
  }
  if (images.empty()) throw std::runtime_error("no images in " + options.directory.string());
  return images;
}

/// libjpeg-turbo as in its manual, with one decoder for all images. Rows are not aligned to 32
/// bytes, where the library uses non-temporal stores: 32x32 images take 1.6 times as long then.
class PlainDecoder {
 public:
  PlainDecoder() {
    codec_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&codec_);
  }
  ~PlainDecoder() { jpeg_destroy_decompress(&codec_); }
  PlainDecoder(const PlainDecoder&) = delete;
  PlainDecoder& operator=(const PlainDecoder&) = delete;

  void decode(std::string_view bytes) {
    jpeg_mem_src(&codec_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&codec_, TRUE);
    jpeg_start_decompress(&codec_);
    const std::size_t stride =
        std::size_t{codec_.output_width} * static_cast<std::size_t>(codec_.output_components);
    pixels_.resize(64 + stride * codec_.output_height);
    const std::size_t begin = 48 - reinterpret_cast<std::uintptr_t>(pixels_.data()) % 32;
    while (codec_.output_scanline < codec_.output_height) {
      JSAMPROW row = pixels_.data() + begin + codec_.output_scanline * stride;
      jpeg_read_scanlines(&codec_, &row, 1);
    }
    jpeg_finish_decompress(&codec_);
  }

 private:
  jpeg_decompress_struct codec_{};
  jpeg_error_mgr errors_{};
  std::vector<std::uint8_t> pixels_;
};

/// Decodes images in memory repeatedly, in order, an equal part per thread.
Measurement measure_plain(const Options& options) {
  const std::vector<std::string> images = encoded_images(options);
  std::atomic<std::int64_t> decoded = 0;
  std::atomic<bool> done = false;
  const auto loop = [&](std::span<const std::string> part) {
    PlainDecoder decoder;
    for (std::size_t next = 0; !done.load(std::memory_order_relaxed);
         next = (next + 1) % part.size()) {
      decoder.decode(part[next]);
      decoded.fetch_add(1, std::memory_order_relaxed);
    }
  };
  Measurement result;
  const std::size_t share =
      std::max<std::size_t>(images.size() / static_cast<std::size_t>(options.threads), 1);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.threads); ++i)
    threads.emplace_back(loop, std::span(images).subspan(i * share % images.size(), share));
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds / 5));
  const double processor = processor_seconds();
  const std::int64_t before = decoded;
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  result.images = decoded - before;
  result.seconds = seconds_since(start);
  result.processor_seconds = processor_seconds() - processor;
  done = true;
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Images a second: from TFRecord files to batches, or decoded by a plain loop.",
               "lockstep_bench_image_records");
  app.add_option("side", options.side,
                 "floats or pixels: what the pipeline's batches hold; plain: a loop that decodes")
      ->required()
      ->check(CLI::IsMember({"floats", "pixels", "plain"}));
  app.add_option("directory", options.directory, "Where train-*.tfrecord are")->required();
  app.add_option("--index-dir", options.index_dir,
                 "Where their indexes are kept; beside them where it is not given");
  app.add_option("--recipe", options.recipe)->capture_default_str();
  app.add_option("--feature", options.feature, "What of a record the plain loop decodes")
      ->capture_default_str();
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--in-order", options.in_order, "Do not shuffle");
  CLI11_PARSE(app, argc, argv);
  try {
    const Measurement result =
        options.side == "plain" ? measure_plain(options) : measure_pipeline(options);
    const nlohmann::ordered_json report = {{"images", result.images},
                                           {"seconds", result.seconds},
                                           {"processor_seconds", result.processor_seconds}};
    std::printf("%s\n", report.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep_bench_image_records: error: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
