#include "lockstep/data/image/decode_image.h"

#include <cstddef>  // jpeglib.h needs the declarations of these two
#include <cstdio>

#include <jpeglib.h>

#include <jerror.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::string_view kJpeg = "JPEG";
constexpr JOCTET kEndOfImage[] = {0xff, JPEG_EOI};

/// Smooth chroma upsampling reads neighboring pixels, so a part is decoded with this border.
constexpr int kNeighbours = 2;

/// A progressive image may have any number of scans, each of a few bytes. Real images have about
/// ten.
constexpr int kMaxScans = 500;

/// The memory that libjpeg may allocate for an image of up to `pixels` pixels. A progressive image
/// needs all its coefficients, two bytes each: 3 bytes per pixel for 4:2:0, the usual case, and 6
/// for 4:4:4, which is refused above two thirds of `pixels`. The rest is for tables and rows.
constexpr long max_memory(std::int64_t pixels) { return 4 * pixels + (16L << 20); }

/// libjpeg's error handler leaves libjpeg with longjmp: its C code has no cleanup to skip.
struct ErrorExit {
  jpeg_error_mgr manager;  // first member, so that a pointer to it is a pointer to this
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void leave(j_common_ptr codec) {
  auto* exit = reinterpret_cast<ErrorExit*>(codec->err);
  codec->err->format_message(codec, exit->message.data());
  std::longjmp(exit->jump, 1);
}

/// Warnings about the file, not about its pixels: bytes between two markers, unknown versions.
bool is_harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR ||
         warning == JWRN_ADOBE_XFORM;
}

/// Most warnings (level -1) are caused by corrupt data, for which libjpeg has substituted other
/// pixels. Training on such pixels is worse than stopping. Levels from 0 are traces.
void leave_on_warning(j_common_ptr codec, int level) {
  if (level < 0 && !is_harmless(codec->err->msg_code)) leave(codec);
}

void ignore(j_decompress_ptr) {}

boolean fail_at_end(j_decompress_ptr codec) {
  ERREXIT(codec, JERR_INPUT_EOF);
  return FALSE;
}

void skip_bytes(j_decompress_ptr codec, long count) {
  jpeg_source_mgr& source = *codec->src;
  if (count <= 0) return;
  if (static_cast<std::size_t>(count) > source.bytes_in_buffer) ERREXIT(codec, JERR_INPUT_EOF);
  source.next_input_byte += count;
  source.bytes_in_buffer -= static_cast<std::size_t>(count);
}

void limit_scans(j_common_ptr codec) {
  if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number > kMaxScans)
    ERREXIT1(codec, JERR_BAD_PROGRESSION, kMaxScans);
}

std::uint8_t luma(int red, int green, int blue) {
  return static_cast<std::uint8_t>((299 * red + 587 * green + 114 * blue + 500) / 1000);
}

/// Converts ink to light. Adobe files, the usual case, store ink inverted: 255 is none.
void convert_cmyk(const std::uint8_t* from, int width, bool inverted, int channels,
                  std::uint8_t* to) {
  for (int x = 0; x < width; ++x, from += 4, to += channels) {
    std::array<int, 3> light{};
    const int black = inverted ? from[3] : 255 - from[3];
    for (std::size_t c = 0; c < 3; ++c)
      light[c] = ((inverted ? from[c] : 255 - from[c]) * black + 127) / 255;
    if (channels == 1) {
      *to = luma(light[0], light[1], light[2]);
    } else {
      for (std::size_t c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>(light[c]);
    }
  }
}

}  // namespace

class JpegDecoder::State {
 public:
  explicit State(std::int64_t max_pixels) : max_pixels_(max_pixels) {
    codec_.err = jpeg_std_error(&exit_.manager);
    exit_.manager.error_exit = leave;
    exit_.manager.emit_message = leave_on_warning;
    guard([this] { jpeg_create_decompress(&codec_); });
    codec_.mem->max_memory_to_use = max_memory(max_pixels);
    source_.init_source = ignore;
    source_.fill_input_buffer = fail_at_end;
    source_.skip_input_data = skip_bytes;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.term_source = ignore;
    progress_.progress_monitor = limit_scans;
    codec_.src = &source_;
    codec_.progress = &progress_;
  }
  ~State() { jpeg_destroy_decompress(&codec_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ImageHeader open(std::span<const std::uint8_t> bytes) {
    jpeg_abort_decompress(&codec_);
    source_.next_input_byte = bytes.data();
    source_.bytes_in_buffer = bytes.size();
    guard([this] { jpeg_read_header(&codec_, TRUE); });
    check_image_size(kJpeg, codec_.image_height, codec_.image_width, max_pixels_);
    return scaled(1);
  }

  ImageHeader scaled(int denominator) const {
    const int width = static_cast<int>(codec_.image_width);
    const int height = static_cast<int>(codec_.image_height);
    return {(height + denominator - 1) / denominator, (width + denominator - 1) / denominator,
            codec_.num_components == 1 ? 1 : 3};
  }

  ImageView decode(const Rectangle& part, int denominator, int channels, Image& memory) {
    const ImageHeader whole = scaled(denominator);
    LOCKSTEP_CHECK(part.x >= 0 && part.y >= 0 && part.width > 0 && part.height > 0);
    LOCKSTEP_CHECK(part.x + part.width <= whole.width && part.y + part.height <= whole.height);
    const JOCTET* pixels_begin = source_.next_input_byte;
    const int left = start(part, denominator, channels);
    memory.reshape(part.height, static_cast<int>(codec_.output_width), channels);
    if (is_cmyk()) ink_.reshape(1, memory.width(), 4);
    read_rows(part.y, memory.span());
    if (codec_.output_scanline < codec_.output_height) require_end(pixels_begin);
    jpeg_abort_decompress(&codec_);
    return memory.view().crop({part.x - left, 0, part.width, part.height});
  }

 private:
  /// Calls `function`, which libjpeg may leave with longjmp: it must not own resources.
  template <typename Function>
  void guard(Function function) {
    if (setjmp(exit_.jump) != 0) {
      const int code = codec_.err->msg_code;
      jpeg_abort_decompress(&codec_);
      // Above the memory limit, libjpeg looks for a temporary file and has none.
      if (code == JERR_NO_BACKING_STORE || code == JERR_OUT_OF_MEMORY)
        throw Error(ErrorCategory::data, "JPEG image",
                    fmt::format("expected an image that decodes within {} MiB",
                                max_memory(max_pixels_) >> 20),
                    "got more");
      throw_damaged_image(kJpeg, exit_.message.data());
    }
    function();
  }

  bool is_cmyk() const { return codec_.out_color_space == JCS_CMYK; }

  /// Starts decoding the columns of `part` and their neighbors; returns the first column.
  int start(const Rectangle& part, int denominator, int channels) {
    codec_.scale_num = 1;
    codec_.scale_denom = static_cast<unsigned>(denominator);
    const bool ink = codec_.jpeg_color_space == JCS_CMYK || codec_.jpeg_color_space == JCS_YCCK;
    codec_.out_color_space = ink ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    guard([this] { jpeg_start_decompress(&codec_); });
    const int whole_width = static_cast<int>(codec_.output_width);
    auto left = static_cast<JDIMENSION>(std::max(part.x - kNeighbours, 0));
    const int right = std::min(part.x + part.width + kNeighbours, whole_width);
    JDIMENSION width = static_cast<JDIMENSION>(right) - left;
    if (static_cast<int>(width) < whole_width)
      guard([this, &left, &width] { jpeg_crop_scanline(&codec_, &left, &width); });
    return static_cast<int>(left);
  }

  void read_rows(int first, const ImageSpan& rows) {
    guard([this, first, &rows] {
      if (first > 0) jpeg_skip_scanlines(&codec_, static_cast<JDIMENSION>(first));
      for (int y = 0; y < rows.height; ++y) read_row(rows.row(y), rows);
      if (codec_.output_scanline == codec_.output_height) jpeg_finish_decompress(&codec_);
    });
  }

  void read_row(std::uint8_t* row, const ImageSpan& rows) {
    const bool ink = is_cmyk();
    JSAMPROW target = ink ? ink_.span().pixels : row;
    jpeg_read_scanlines(&codec_, &target, 1);
    if (ink) convert_cmyk(target, rows.width, codec_.saw_Adobe_marker != FALSE, rows.channels, row);
  }

  /// A decoder that stops after some rows has not checked that the rest exists. The end marker
  /// never occurs in coded pixels, so searching for it from the end is reliable, regardless of
  /// trailing data, and immediate for an intact file.
  void require_end(const JOCTET* pixels_begin) const {
    const JOCTET* end = source_.next_input_byte + source_.bytes_in_buffer;
    if (std::find_end(pixels_begin, end, std::begin(kEndOfImage), std::end(kEndOfImage)) == end)
      throw_damaged_image(kJpeg, "Premature end of input file");
  }

  std::int64_t max_pixels_;
  ErrorExit exit_{};
  jpeg_decompress_struct codec_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  Image ink_;
};

JpegDecoder::JpegDecoder(std::int64_t max_pixels) : state_(std::make_unique<State>(max_pixels)) {}
JpegDecoder::~JpegDecoder() = default;

ImageHeader JpegDecoder::open(std::span<const std::uint8_t> bytes) { return state_->open(bytes); }

ImageView JpegDecoder::decode(const Rectangle& part, int denominator, int channels, Image& memory) {
  return state_->decode(part, denominator, channels, memory);
}

ImageView JpegDecoder::decode(int channels, Image& memory) {
  const ImageHeader whole = state_->scaled(1);
  return decode({0, 0, whole.width, whole.height}, 1, channels, memory);
}

}  // namespace lockstep::inline v0::data
