#include "lockstep/base/file/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace lockstep::inline v0 {
namespace {

using namespace std::string_view_literals;
using Content = FileKind::Content;

struct Magic {
  std::string_view bytes;
  FileKind kind;
  std::size_t offset = 0;
};
constexpr std::string_view kHeic =
    "an HEIC image, as of an iPhone, which is not supported: convert it";
constexpr std::string_view kOffice = "an Excel or other Office file: save it as CSV";
constexpr std::array kMagics = {
    Magic{"GIF87a", {Content::image, "a GIF image, which is not supported: convert it"}},
    Magic{"GIF89a", {Content::image, "a GIF image, which is not supported: convert it"}},
    Magic{"II*\0"sv, {Content::image, "a TIFF image, which is not supported: convert it"}},
    Magic{"MM\0*"sv, {Content::image, "a TIFF image, which is not supported: convert it"}},
    Magic{"ftypheic", {Content::image, kHeic}, 4},
    Magic{"ftypheix", {Content::image, kHeic}, 4},
    Magic{"ftypmif1", {Content::image, kHeic}, 4},
    Magic{"ftypavif", {Content::image, "an AVIF image, which is not supported: convert it"}, 4},
    Magic{"\xff\xd8\xff", {Content::image, "a JPEG image"}},
    Magic{"\x89PNG\r\n\x1a\n", {Content::image, "a PNG image"}},
    Magic{"%PDF-", {Content::other, "a PDF document"}},
    Magic{"\x1f\x8b\x08", {Content::other, "a gzip file: decompress it"}},
    Magic{"1AY&SY", {Content::other, "a bzip2 file: decompress it"}, 4},
    Magic{"\xfd\x37zXZ\0"sv, {Content::other, "an xz file: decompress it"}},
    Magic{"\x28\xb5\x2f\xfd", {Content::other, "a zstd file: decompress it"}},
    Magic{"7z\xbc\xaf\x27\x1c", {Content::other, "a 7z archive: unpack it"}},
    Magic{"Rar!\x1a\x07", {Content::other, "a RAR archive: unpack it"}},
    Magic{"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", {Content::other, kOffice}},
    Magic{"\0ustar"sv, {Content::other, "a tar archive, such as of WebDataset: unpack it"}, 256},
    Magic{"\x89HDF", {Content::arrays, "an HDF5 file, as Keras writes"}},
    Magic{"\x93NUMPY", {Content::arrays, "a NumPy array (.npy)"}},
    Magic{"GGUF\3\0\0\0"sv, {Content::arrays, "a GGUF file"}},
    Magic{"PAR1\x15", {Content::other, "a Parquet file"}},
    Magic{"ARROW1\0\0"sv, {Content::other, "an Arrow file"}},
    Magic{"Obj\1", {Content::other, "an Avro file"}},
    Magic{"SQLite format 3\0"sv, {Content::other, "an SQLite database"}},
    Magic{"\0{\""sv, {Content::other, "a safetensors file"}, 7},
    Magic{"version https://git-lfs.github.com/spec/",
          {Content::placeholder, "a Git LFS pointer: git lfs pull fetches the file"}},
};

/// The name of the first file in a zip archive identifies the format.
FileKind kind_of_zip(std::string_view head) {
  constexpr std::size_t kNameLength = 26;
  constexpr std::size_t kName = 30;
  const auto byte = [&](std::size_t i) { return std::size_t{static_cast<unsigned char>(head[i])}; };
  const std::string_view name =
      head.size() < kName ? ""
                          : head.substr(kName, byte(kNameLength) + 256 * byte(kNameLength + 1));
  if (name.ends_with("/data.pkl")) return {Content::torch, "a zip archive, as torch.save writes"};
  if (name.ends_with(".npy")) return {Content::arrays, "NumPy arrays (.npz)"};
  const bool is_office = name == "[Content_Types].xml" || name.starts_with("_rels/") ||
                         name.starts_with("docProps/") || name.starts_with("xl/");
  if (is_office) return {Content::other, kOffice};
  return {Content::other, "a zip archive: unpack it"};
}

/// Whether `text` begins with the lower-case `word`, ignoring case.
bool begins_with(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::ranges::equal(text.substr(0, word.size()), word, {},
                            [](char c) { return std::tolower(static_cast<unsigned char>(c)); });
}

/// Whether there are no control characters, and most characters are ASCII.
bool is_text(std::string_view head) {
  const auto is_ascii = [](char c) { return c >= ' ' && c <= '~'; };
  const auto is_control = [](char c) {
    return (c >= 0 && c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == '\x7f';
  };
  return std::ranges::none_of(head, is_control) &&
         std::ranges::count_if(head, is_ascii) * 2 > std::ssize(head);
}

FileKind kind_of_text(std::string_view head) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::string_view text = head;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  if (begins_with(text, "<!doctype html") || begins_with(text, "<html"))
    return {Content::markup, "an HTML page: the download failed, fetch the file again"};
  if (begins_with(text, "<?xml")) return {Content::markup, "an XML file"};
  const std::size_t next = text.find_first_not_of(kBlanks, 1);
  const bool is_json = (text.starts_with('{') || text.starts_with('[')) &&
                       next != std::string_view::npos && "\"{["sv.find(text[next]) != text.npos;
  if (is_json) return {Content::json, "JSON"};
  return is_text(head) ? FileKind{Content::text, "text"} : FileKind{};
}

}  // namespace

FileKind file_kind(std::string_view head) {
  head = head.substr(0, kFileKindBytes);
  if (head.starts_with("PK\x03\x04")) return kind_of_zip(head);
  for (const Magic& magic : kMagics)
    if (head.size() > magic.offset && head.substr(magic.offset).starts_with(magic.bytes))
      return magic.kind;
  if (head.starts_with("RIFF") && head.size() >= 12 && head.substr(8).starts_with("WEBP"))
    return {Content::image, "a WebP image, which is not supported: convert it"};
  if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5)
    return {Content::torch, "a Python pickle, as torch.save writes"};
  // ModelProto: ir_version, then producer_name or graph.
  if (head.size() > 2 && head[0] == '\x08' && (head[2] == '\x12' || head[2] == '\x3a'))
    return {Content::arrays, "an ONNX model"};
  return kind_of_text(head);
}

void refuse_kind(const std::filesystem::path& path, const FileKind& kind, std::string_view expected,
                 ErrorCategory category) {
  throw Error(category, path.string(), expected, fmt::format("got {}", kind.name));
}

}  // namespace lockstep::inline v0
