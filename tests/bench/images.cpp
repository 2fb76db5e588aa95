// Decoding and preparation of images in one thread: a plain loop over libjpeg-turbo, our decoder,
// and whole recipes. Items are images.
#include <cstddef>  // required by jpeglib.h
#include <cstdio>

#include <jpeglib.h>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "lockstep/data/image/decode_image.h"
#include "lockstep/data/image/transform.h"
#include "tests/bench/photograph.h"

namespace {

using namespace lockstep::data;
using lockstep::bench::photograph;

void count(benchmark::State& state, std::size_t encoded_bytes) {
  state.SetItemsProcessed(state.iterations());
  state.counters["encoded_bytes"] = static_cast<double>(encoded_bytes);
}

std::vector<std::uint8_t> photograph_of(const benchmark::State& state) {
  return photograph(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
}

/// Baseline: the library as in its manual, with one decoder for all images.
void plain_libjpeg(benchmark::State& state) {
  const std::vector<std::uint8_t> bytes = photograph_of(state);
  std::vector<std::uint8_t> pixels;
  jpeg_decompress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&codec);
  for ([[maybe_unused]] auto each : state) {
    jpeg_mem_src(&codec, bytes.data(), bytes.size());
    jpeg_read_header(&codec, TRUE);
    jpeg_start_decompress(&codec);
    const std::size_t stride = std::size_t{codec.output_width} * 3;
    pixels.resize(stride * codec.output_height);
    while (codec.output_scanline < codec.output_height) {
      JSAMPROW row = pixels.data() + codec.output_scanline * stride;
      jpeg_read_scanlines(&codec, &row, 1);
    }
    jpeg_finish_decompress(&codec);
    benchmark::DoNotOptimize(pixels.data());
  }
  jpeg_destroy_decompress(&codec);
  count(state, bytes.size());
}

void jpeg_decoder(benchmark::State& state) {
  const std::vector<std::uint8_t> bytes = photograph_of(state);
  JpegDecoder decoder;
  Image memory;
  for ([[maybe_unused]] auto each : state) {
    decoder.open(bytes);
    benchmark::DoNotOptimize(decoder.decode(3, memory).pixels);
  }
  count(state, bytes.size());
}

template <typename Value>
void apply_recipe(benchmark::State& state, const char* name) {
  const std::vector<std::uint8_t> bytes = photograph_of(state);
  const ImageTransform transform(ImageRecipe::parse(name));
  ImageScratch scratch;
  std::vector<Value> output(transform.output_size());
  std::int64_t record = 0;
  for ([[maybe_unused]] auto each : state) {
    transform.apply(std::span<const std::uint8_t>(bytes),
                    {.seed = 1, .epoch = 0, .record_id = record++}, std::span<Value>(output),
                    scratch);
    benchmark::DoNotOptimize(output.data());
  }
  count(state, bytes.size());
}

void recipe_to_bytes(benchmark::State& state, const char* name) {
  apply_recipe<std::uint8_t>(state, name);
}

void recipe_to_floats(benchmark::State& state, const char* name) {
  apply_recipe<float>(state, name);
}

BENCHMARK(plain_libjpeg)->Args({32, 32})->Args({375, 500});
BENCHMARK(jpeg_decoder)->Args({32, 32})->Args({375, 500});
BENCHMARK_CAPTURE(recipe_to_bytes, cifar10_train, "cifar10-train")->Args({32, 32});
BENCHMARK_CAPTURE(recipe_to_floats, cifar10_train, "cifar10-train")->Args({32, 32});
BENCHMARK_CAPTURE(recipe_to_bytes, imagenet_train, "imagenet-train")->Args({375, 500});
BENCHMARK_CAPTURE(recipe_to_floats, imagenet_train, "imagenet-train")->Args({375, 500});
BENCHMARK_CAPTURE(recipe_to_floats, imagenet_test, "imagenet-test")->Args({375, 500});

}  // namespace

BENCHMARK_MAIN();
