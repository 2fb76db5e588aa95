// What an image costs on its way to a network: a plain loop over libjpeg-turbo, our decoder, and whole recipes, in one
// run. One thread; items are images.
#include <cstddef>  // jpeglib.h needs what these two declare
#include <cstdio>

#include <jpeglib.h>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "data/image/decode_jpeg.h"
#include "data/image/transform.h"
#include "device/random.h"

namespace {

using namespace lockstep::data;

/// Slopes with some noise on them, as a photograph has, in JPEG of quality 90 with chroma at half the size.
std::vector<std::uint8_t> photograph(int height, int width) {
  const lockstep::device::Philox noise(1);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height) * width * 3);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const auto words = noise.block(static_cast<std::uint64_t>(y), static_cast<std::uint64_t>(x));
      for (int c = 0; c < 3; ++c) {
        const int slope = (x * (c + 2) / 3 + y * (4 - c) / 3) % 400;
        const int value = std::abs(slope - 200) + static_cast<int>(words[static_cast<std::size_t>(c)] >> 27);
        pixels[(static_cast<std::size_t>(y) * width + x) * 3 + c] = static_cast<std::uint8_t>(std::min(value, 255));
      }
    }
  }
  jpeg_compress_struct codec{};
  jpeg_error_mgr errors{};
  codec.err = jpeg_std_error(&errors);
  jpeg_create_compress(&codec);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&codec, &memory, &size);
  codec.image_width = static_cast<JDIMENSION>(width);
  codec.image_height = static_cast<JDIMENSION>(height);
  codec.input_components = 3;
  codec.in_color_space = JCS_RGB;
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, 90, TRUE);
  jpeg_start_compress(&codec, TRUE);
  for (int y = 0; y < height; ++y) {
    JSAMPROW row = pixels.data() + static_cast<std::size_t>(y) * width * 3;
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  std::vector<std::uint8_t> bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

void count(benchmark::State& state, std::size_t encoded_bytes) {
  state.SetItemsProcessed(state.iterations());
  state.counters["encoded_bytes"] = static_cast<double>(encoded_bytes);
}

std::vector<std::uint8_t> photograph_of(const benchmark::State& state) {
  return photograph(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
}

/// The floor: the library as its manual shows it, with one decoder for all images.
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
    transform.apply(std::span<const std::uint8_t>(bytes), {.seed = 1, .epoch = 0, .record_id = record++},
                    std::span<Value>(output), scratch);
    benchmark::DoNotOptimize(output.data());
  }
  count(state, bytes.size());
}

void recipe_to_bytes(benchmark::State& state, const char* name) { apply_recipe<std::uint8_t>(state, name); }

void recipe_to_floats(benchmark::State& state, const char* name) { apply_recipe<float>(state, name); }

BENCHMARK(plain_libjpeg)->Args({32, 32})->Args({375, 500});
BENCHMARK(jpeg_decoder)->Args({32, 32})->Args({375, 500});
BENCHMARK_CAPTURE(recipe_to_bytes, cifar10_train, "cifar10-train")->Args({32, 32});
BENCHMARK_CAPTURE(recipe_to_floats, cifar10_train, "cifar10-train")->Args({32, 32});
BENCHMARK_CAPTURE(recipe_to_bytes, imagenet_train, "imagenet-train")->Args({375, 500});
BENCHMARK_CAPTURE(recipe_to_floats, imagenet_train, "imagenet-train")->Args({375, 500});
BENCHMARK_CAPTURE(recipe_to_floats, imagenet_test, "imagenet-test")->Args({375, 500});

}  // namespace

BENCHMARK_MAIN();
