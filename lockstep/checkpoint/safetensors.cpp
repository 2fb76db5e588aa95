#include "lockstep/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file_kind.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/json/json.h"
#include "lockstep/checkpoint/files.h"

namespace lockstep::inline v0::checkpoint {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "tensors are read and written in the processor's byte order");

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr int kMaxHeaderDepth = 8;  // the format has three levels
constexpr std::uint64_t kLengthBytes = 8;
constexpr const char* kMetadataKey = "__metadata__";

struct ElementType {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<ElementType, 16> kElementTypes{{{"F64", 8},
                                                     {"I64", 8},
                                                     {"U64", 8},
                                                     {"C64", 8},
                                                     {"F32", 4},
                                                     {"I32", 4},
                                                     {"U32", 4},
                                                     {"F16", 2},
                                                     {"BF16", 2},
                                                     {"I16", 2},
                                                     {"U16", 2},
                                                     {"F8_E4M3", 1},
                                                     {"F8_E5M2", 1},
                                                     {"I8", 1},
                                                     {"U8", 1},
                                                     {"BOOL", 1}}};

// ---- writing

std::string_view type_name(const TensorView& tensor) {
  return tensor.values.index() == 0 ? "F32" : "I64";
}

std::string_view bytes_of(const TensorView& tensor) {
  return std::visit(
      [](auto values) {
        return std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes());
      },
      tensor.values);
}

/// Wide elements first, so that every tensor is aligned to its element size; then by name, so that
/// the bytes depend only on the contents.
std::vector<const TensorView*> file_order(std::span<const TensorView> tensors) {
  std::vector<const TensorView*> order;
  for (const TensorView& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorView* a, const TensorView* b) {
    return std::pair(b->values.index(), std::string_view(a->name)) <
           std::pair(a->values.index(), std::string_view(b->name));
  });
  return order;
}

std::string header_of(std::span<const TensorView* const> order, const TensorMetadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::uint64_t offset = 0;
  for (const TensorView* tensor : order) {
    const std::size_t count = std::visit([](auto values) { return values.size(); }, tensor->values);
    LOCKSTEP_CHECK_OP(count, ==, static_cast<std::size_t>(model::element_count(tensor->shape)));
    LOCKSTEP_CHECK(tensor->name != kMetadataKey && !header.contains(tensor->name));
    const std::uint64_t end = offset + bytes_of(*tensor).size();
    header[tensor->name] = {
        {"dtype", type_name(*tensor)}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// ---- reading

/// Throws Error for a file of another known format, with a way to convert it.
void refuse_other_format(const std::filesystem::path& path, std::string_view head) {
  using Content = FileKind::Content;
  const FileKind kind = file_kind(head);
  // The length of a long safetensors header can look like another format.
  if (!kind.is_known() || kind.name == "a safetensors file") return;
  const std::string_view conversion =
      kind.content == Content::torch
          ? "; in Python, safetensors.torch.save_file(model.state_dict(), \"w.safetensors\") "
            "converts it"
      : kind.content == Content::arrays
          ? "; in Python, safetensors.numpy.save_file({name: array, ...}, \"w.safetensors\") "
            "converts it"
      : kind.content == Content::json
          ? ", such as the index of several files, whose name ends with .safetensors.index.json"
          : "";
  refuse(path, "expected a safetensors file", fmt::format("got {}{}", kind.name, conversion));
}

/// Parses the header. A tensor with four extents has ten values in about 80 bytes, so a header with
/// many more values for its length is not valid; without this limit, parsing could take 25 times
/// its length in memory.
json parse_header(const std::filesystem::path& path, std::string_view text) {
  constexpr std::size_t kBytesPerValue = 6;
  constexpr std::size_t kFreeValues = 4096;
  const JsonLimits limits{.bytes = kMaxHeaderBytes,
                          .depth = kMaxHeaderDepth,
                          .values = kFreeValues + text.size() / kBytesPerValue};
  try {
    return parse_json(text, ErrorCategory::checkpoint, path.string(), limits);
  } catch (const std::bad_alloc&) {
    refuse(path, "expected memory for the header",
           fmt::format("got none for its {} bytes", text.size()));
  }
}

std::uint64_t element_bytes(const std::filesystem::path& path, const std::string& name,
                            const std::string& type) {
  const auto* found = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                   [&](const ElementType& known) { return known.name == type; });
  if (found == kElementTypes.end())
    refuse(path, fmt::format("expected a known type for \"{}\"", name),
           fmt::format("got \"{}\"", type));
  return found->bytes;
}

/// The size of a tensor in bytes; throws Error if it overflows.
std::uint64_t shape_bytes(const std::filesystem::path& path, const SafetensorsFile::Entry& entry,
                          std::uint64_t element) {
  std::uint64_t bytes = element;
  for (const std::int64_t extent : entry.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      refuse(path, fmt::format("expected a shape of \"{}\" that fits in a file", entry.name),
             "got " + model::to_string(entry.shape));
  }
  return bytes;
}

bool is_index(const json& value) {
  return value.is_number_unsigned() &&
         value.get<std::uint64_t>() <=
             static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

/// Parses one member of the header. The offset of the entry is relative to the end of the header.
SafetensorsFile::Entry parse_entry(const std::filesystem::path& path, const std::string& name,
                                   const json& value) {
  const auto is_list_of_indexes = [](const json& list) {
    return list.is_array() && std::all_of(list.begin(), list.end(), is_index);
  };
  const bool well_formed = value.is_object() && value.contains("dtype") &&
                           value.contains("shape") && value.contains("data_offsets") &&
                           value["dtype"].is_string() && is_list_of_indexes(value["shape"]) &&
                           is_list_of_indexes(value["data_offsets"]) &&
                           value["data_offsets"].size() == 2;
  if (!well_formed)
    refuse(path, fmt::format("expected dtype, shape and data_offsets of \"{}\"", name),
           "got " + describe_json(value));
  SafetensorsFile::Entry entry{name, value["dtype"], value["shape"].get<model::Shape>(),
                               value["data_offsets"][0], 0};
  const std::uint64_t end = value["data_offsets"][1];
  const std::uint64_t expected = shape_bytes(path, entry, element_bytes(path, name, entry.type));
  if (end < entry.offset || end - entry.offset != expected)
    refuse(path,
           fmt::format("expected {} bytes of \"{}\", {} {}", expected, name, entry.type,
                       model::to_string(entry.shape)),
           fmt::format("its data_offsets are [{}, {}]", entry.offset, end));
  entry.bytes = expected;
  return entry;
}

TensorMetadata parse_metadata(const std::filesystem::path& path, const json& value) {
  const bool texts =
      value.is_object() &&
      std::all_of(value.begin(), value.end(), [](const json& text) { return text.is_string(); });
  if (!texts)
    refuse(path, "expected strings by name in __metadata__", "got " + describe_json(value));
  return value.get<TensorMetadata>();
}

/// Checks that `entries` follow one another without gap or overlap, up to `data_bytes`.
void check_cover(const std::filesystem::path& path, std::span<const SafetensorsFile::Entry> entries,
                 std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (const SafetensorsFile::Entry& entry : entries) {
    if (entry.offset != end)
      refuse(path,
             fmt::format("expected \"{}\" at byte {} of the data, where the tensor before it ends",
                         entry.name, end),
             fmt::format("it begins at {}", entry.offset));
    end += entry.bytes;
  }
  if (end != data_bytes)
    refuse(path, fmt::format("expected {} bytes of tensors", end),
           fmt::format("the file has {}", data_bytes));
}

}  // namespace

FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const TensorMetadata& metadata, Destination destination) {
  const std::vector<const TensorView*> order = file_order(tensors);
  const std::string header = header_of(order, metadata);
  LOCKSTEP_CHECK_OP(header.size(), <=, kMaxHeaderBytes);
  std::array<char, kLengthBytes> length{};
  const std::uint64_t header_bytes = header.size();
  std::memcpy(length.data(), &header_bytes, kLengthBytes);

  HashedFile file(path, destination);
  file.write({length.data(), length.size()});
  file.write(header);
  for (const TensorView* tensor : order) file.write(bytes_of(*tensor));
  return file.finish();
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path_given)
    : file_(std::move(path_given), ErrorCategory::checkpoint) {
  const std::uint64_t file_bytes = static_cast<std::uint64_t>(file_stamp(path()).size);
  std::uint64_t header_bytes = 0;
  std::array<char, kFileKindBytes> head{};
  const std::size_t got = file_.read_at(0, head.data(), head.size());
  if (got < kLengthBytes)
    refuse(path(), "expected 8 bytes with the length of the header",
           fmt::format("the file has {}", file_bytes));
  std::memcpy(&header_bytes, head.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes) {
    refuse_other_format(path(), {head.data(), got});
    refuse(path(), fmt::format("expected a header of at most {} bytes", kMaxHeaderBytes),
           fmt::format("got {}", header_bytes));
  }
  if (header_bytes > file_bytes - kLengthBytes)
    refuse(path(), fmt::format("expected {} bytes of header", header_bytes),
           fmt::format("the file ends after {}", file_bytes - kLengthBytes));

  std::string header(header_bytes, '\0');
  header.resize(file_.read_at(kLengthBytes, header.data(), header.size()));
  if (!header.starts_with('{'))
    refuse(path(), "expected a header that begins with {",
           fmt::format("got \"{}\"", header.substr(0, 1)));
  const json parsed = parse_header(path(), header);
  header = {};
  for (const auto& [name, value] : parsed.items()) {
    if (name == kMetadataKey) {
      metadata_ = parse_metadata(path(), value);
    } else {
      tensors_.push_back(parse_entry(path(), name, value));
    }
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  check_cover(path(), tensors_, file_bytes - kLengthBytes - header_bytes);
  for (Entry& entry : tensors_) entry.offset += kLengthBytes + header_bytes;
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

void SafetensorsFile::read(const Entry& entry, std::span<float> into) const {
  read_bytes(entry, "F32", std::as_writable_bytes(into));
}

void SafetensorsFile::read(const Entry& entry, std::span<std::int64_t> into) const {
  read_bytes(entry, "I64", std::as_writable_bytes(into));
}

void SafetensorsFile::read_widened(const Entry& entry, std::span<float> into) const {
  if (entry.type == "BF16") return read_half<BFloat16>(entry, "BF16", into);
  if (entry.type == "F16") return read_half<Float16>(entry, "F16", into);
  if (entry.type == "F64") {
    std::vector<double> values(into.size());
    read_bytes(entry, "F64", std::as_writable_bytes(std::span(values)));
    std::ranges::transform(values, into.begin(),
                           [](double value) { return static_cast<float>(value); });
    return;
  }
  read(entry, into);
}

template <typename Half>
void SafetensorsFile::read_half(const Entry& entry, std::string_view type,
                                std::span<float> into) const {
  std::vector<Half> values(into.size());
  read_bytes(entry, type, std::as_writable_bytes(std::span(values)));
  widen(values, into);
}

void SafetensorsFile::read_bytes(const Entry& entry, std::string_view type,
                                 std::span<std::byte> into) const {
  if (entry.type != type || entry.bytes != into.size())
    refuse(path(),
           fmt::format("expected {} bytes of {} under \"{}\"", into.size(), type, entry.name),
           fmt::format("it has {} of {}", entry.bytes, entry.type));
  for (std::size_t done = 0; done < into.size();) {
    const std::size_t wanted = std::min(into.size() - done, kFileProgressBytes);
    const std::size_t got =
        file_.read_at(entry.offset + done, reinterpret_cast<char*>(into.data()) + done, wanted);
    if (got != wanted)
      refuse(path(), fmt::format("expected {} bytes of \"{}\"", into.size(), entry.name),
             "the file ended early");
    done += got;
    note_file_progress();
  }
}

}  // namespace lockstep::inline v0::checkpoint
