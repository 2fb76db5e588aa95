#include "lockstep/data/source/idx_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file_kind.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/data/record/compression.h"

namespace lockstep::inline v0::data {
namespace {

constexpr std::string_view kDefaultPart = "train";
constexpr unsigned kUnsignedByte = 0x08;

std::string prefix_of(const std::string& part) {
  if (part == kDefaultPart) return "train";
  if (part == "test") return "t10k";
  throw Error(ErrorCategory::input, "IDX data", "expected the part train or test",
              fmt::format("got {}", part));
}

std::optional<std::filesystem::path> first_existing(const std::filesystem::path& directory,
                                                    std::string_view prefix,
                                                    std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    for (const std::string_view ending : {"", ".gz"}) {
      auto path = directory / fmt::format("{}-{}{}", prefix, name, ending);
      if (std::error_code ignored; std::filesystem::exists(path, ignored)) return path;
    }
  }
  return std::nullopt;
}

std::optional<std::filesystem::path> image_file(const std::filesystem::path& directory,
                                                std::string_view prefix) {
  return first_existing(directory, prefix, {"images-idx3-ubyte", "images-idx4-ubyte"});
}

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view expected,
                       std::string_view actual) {
  throw Error(ErrorCategory::data, file.string(), expected, actual);
}

std::int64_t highest_label(const IdxArray& labels) {
  std::int64_t highest = -1;
  for (const std::uint8_t label : labels.elements())
    highest = std::max<std::int64_t>(highest, label);
  return highest;
}

}  // namespace

std::span<const std::uint8_t> IdxArray::elements() const {
  if (file.empty()) return shared;
  return std::span(reinterpret_cast<const std::uint8_t*>(file.data()), file.size())
      .subspan(header_bytes);
}

IdxArray read_idx(const std::filesystem::path& file) {
  const InputFile input(file);
  std::array<char, 2> magic = {};
  input.read_at(0, magic.data(), magic.size());
  const bool packed = magic[0] == '\x1f' && magic[1] == '\x8b';
  const Compression compression = packed ? Compression::gzip : Compression::none;

  // The header determines the length of the file. It is read first: a compressed file of another
  // length may be arbitrarily large.
  constexpr std::size_t kMaxHeaderBytes = 4 + 4 * 255;
  const std::string head = read_up_to(input, compression, kMaxHeaderBytes);
  const std::span header(reinterpret_cast<const std::uint8_t*>(head.data()), head.size());
  if (header.size() < 4)
    fail(file, "expected an IDX header of 4 bytes plus 4 bytes per dimension",
         fmt::format("the file has {} bytes", header.size()));
  if (header[0] != 0 || header[1] != 0 || header[2] != kUnsignedByte) {
    const FileKind kind = file_kind(head);
    fail(file, "expected an IDX file of unsigned bytes (magic number 0x000008..)",
         fmt::format("its magic number is 0x{:02x}{:02x}{:02x}{:02x}{}{}", header[0], header[1],
                     header[2], header[3], kind.is_known() ? "; the file is " : "", kind.name));
  }
  IdxArray array;
  array.header_bytes = 4 + 4 * std::size_t{header[3]};
  if (header.size() < array.header_bytes) {
    fail(file,
         fmt::format("expected {} header bytes for {} dimensions", array.header_bytes, header[3]),
         fmt::format("truncated: the file has {} bytes", header.size()));
  }
  std::uint64_t count = 1;
  for (std::size_t at = 4; at < array.header_bytes; at += 4) {
    const std::uint32_t extent = (std::uint32_t{header[at]} << 24) |
                                 (std::uint32_t{header[at + 1]} << 16) |
                                 (std::uint32_t{header[at + 2]} << 8) | header[at + 3];
    array.shape.push_back(extent);
    if (__builtin_mul_overflow(count, extent, &count))
      count = std::numeric_limits<std::uint64_t>::max();  // larger than any file
  }
  std::uint64_t size = 0;  // includes one more byte, which must not exist
  if (__builtin_add_overflow(count, array.header_bytes + 1, &size))
    size = std::numeric_limits<std::uint64_t>::max();
  array.file = read_up_to(input, compression, size);
  const std::uint64_t data_bytes = array.file.size() - array.header_bytes;
  if (array.shape.empty() || count != data_bytes) {
    fail(file,
         fmt::format("expected {} bytes of data for [{}]", count, fmt::join(array.shape, ", ")),
         data_bytes < count ? fmt::format("truncated: {} bytes follow the header", data_bytes)
                            : fmt::format("at least {} bytes follow the header", data_bytes));
  }
  return array;
}

std::optional<IdxFiles> find_idx_files(const std::filesystem::path& directory,
                                       const std::string& part) {
  const std::string prefix = prefix_of(part);
  auto images = image_file(directory, prefix);
  auto labels = first_existing(directory, prefix, {"labels-idx1-ubyte"});
  if (!images || !labels) return std::nullopt;
  return IdxFiles{*std::move(images), *std::move(labels)};
}

std::filesystem::path find_idx_images(const std::filesystem::path& path, const std::string& part) {
  if (std::error_code ignored; std::filesystem::is_regular_file(path, ignored)) return path;
  const std::string prefix = prefix_of(part);
  const auto images = image_file(path, prefix);
  if (!images)
    fail(path, fmt::format("expected {}-images-idx3-ubyte, with or without .gz", prefix),
         "there is none");
  return *images;
}

IdxSource::IdxSource(const std::filesystem::path& directory, const std::string& part,
                     std::string name, const IndexExchange& exchange)
    : RecordSource({.description = name.empty() ? fmt::format("{} {}", directory.string(), part)
                                                : std::move(name)}) {
  const auto files = find_idx_files(directory, part);
  if (!files) {
    fail(directory,
         fmt::format(
             "expected {0}-images-idx3-ubyte and {0}-labels-idx1-ubyte, each with or without .gz",
             prefix_of(part)),
         "there are none");
  }
  open(exchange, [&] {
    images_ = read_idx(files->images);
    labels_ = read_idx(files->labels);
    const std::int64_t classes = highest_label(labels_) + 1;
    describe(files->images, classes);
    if (labels_.shape.size() != 1 || labels_.shape[0] != images_.shape[0]) {
      fail(files->labels, fmt::format("expected {} labels, one for each image", images_.shape[0]),
           fmt::format("the shape is [{}]", fmt::join(labels_.shape, ", ")));
    }
    if (const auto other = find_idx_files(directory, part == kDefaultPart ? "test" : "train"))
      info_.spec.targets.front().classes =
          std::max(classes, highest_label(read_idx(other->labels)) + 1);
  });
}

IdxSource::IdxSource(const std::filesystem::path& images, const IndexExchange& exchange)
    : RecordSource({.description = images.string()}) {
  open(exchange, [&] {
    images_ = read_idx(images);
    describe(images, 0);
    info_.spec.targets.clear();
  });
}

void IdxSource::open(const IndexExchange& exchange, const std::function<void()>& read) {
  read_on_node(
      exchange, "IDX files",
      [&] {
        read();
        const std::int64_t classes = spec().targets.empty() ? 0 : spec().classes();
        return NodeData{fmt::format("{} {}", classes, fmt::join(images_.shape, " ")),
                        {std::as_bytes(images_.elements()), std::as_bytes(labels_.elements())}};
      },
      [&](const NodeData& data, SharedSegment memory) { use(data, std::move(memory)); });
}

void IdxSource::use(const NodeData& data, SharedSegment memory) {
  std::istringstream numbers(data.description);
  std::int64_t classes = 0;
  numbers >> classes;
  images_ = {.shape = {std::istream_iterator<std::int64_t>(numbers), {}},
             .shared = data.array<std::uint8_t>(0)};
  labels_ = {.shared = data.array<std::uint8_t>(1)};
  describe(info_.description, classes);
  if (labels_.shared.empty()) info_.spec.targets.clear();
  memory_ = std::move(memory);
}

void IdxSource::describe(const std::filesystem::path& file, std::int64_t classes) {
  if (images_.shape.size() < 3 || images_.shape.size() > 4) {
    fail(file, "expected images [N, H, W] or [N, H, W, C]",
         fmt::format("the shape is [{}]", fmt::join(images_.shape, ", ")));
  }
  // If one extent is zero, the others may be arbitrarily large.
  if (std::ranges::count(images_.shape, 0) > 0)
    fail(file, "expected at least one image of at least one pixel",
         fmt::format("the shape is [{}]", fmt::join(images_.shape, ", ")));
  const std::int64_t channels = images_.shape.size() == 4 ? images_.shape[3] : 1;
  info_.spec = SampleSpec::classification({images_.shape[1], images_.shape[2], channels}, classes);
  info_.size = images_.shape[0];
  info_.has_images = true;
  info_.counts_classes = true;
}

void IdxSource::read(std::int64_t record_id, Sample& sample) const {
  const auto record = static_cast<std::size_t>(record_id);
  const auto pixels = static_cast<std::size_t>(spec().feature_count());
  sample.set_image_view(images_.elements().subspan(record * pixels, pixels));
  if (!spec().targets.empty()) sample.label() = labels_.elements()[record];
}

}  // namespace lockstep::inline v0::data
