#include "lockstep/data/source/csv/csv_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/text.h"
#include "lockstep/data/record/compression.h"
#include "lockstep/data/source/tfrecord/tfrecord_source.h"
#include "lockstep/data/text/unicode/unicode.h"

namespace lockstep::inline v0::data {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view kGzip = "\x1f\x8b";

Compression compression_of(const InputFile& file) {
  return read_up_to(file, Compression::none, kGzip.size()) == kGzip ? Compression::gzip
                                                                    : Compression::none;
}

std::string utf8_of_latin1(std::string_view text) {
  std::string utf8;
  utf8.reserve(text.size());
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    if (code >= 0x80) utf8 += static_cast<char>(0xc0 | (code >> 6));
    utf8 += static_cast<char>(code >= 0x80 ? 0x80 | (code & 0x3f) : code);
  }
  return utf8;
}

std::string read_file(const Path& path, TextEncoding encoding) {
  const InputFile file(path);
  std::string text = read_all(file, compression_of(file));
  if (encoding == TextEncoding::latin1) text = utf8_of_latin1(text);
  check_table_text(text, path.string());
  return text;
}

std::vector<std::string> next_fields(CsvRows& rows) {
  if (!rows.next()) return {};
  return {rows.fields().begin(), rows.fields().end()};
}

void require_same_header(const std::vector<std::string>& names, const Path& first,
                         const std::vector<std::string>& others, const Path& file) {
  if (names.size() != others.size())
    throw Error(
        ErrorCategory::data, file.string(),
        fmt::format("expected the {} of {}", counted(std::ssize(names), "column"), first.string()),
        fmt::format("got {}", others.size()));
  const auto [name, other] = std::ranges::mismatch(names, others);
  if (name == names.end()) return;
  throw Error(ErrorCategory::data, file.string(),
              fmt::format("expected {} as column {}, as in {}", *name, name - names.begin() + 1,
                          first.string()),
              fmt::format("got {}", *other));
}

}  // namespace

std::vector<Path> table_files(const Path& name) {
  if (name.string().find_first_of("*?[{~") == std::string::npos) return {name};
  return matching_files({name.string()});
}

bool is_stored_as_read(std::string_view bytes, TextEncoding encoding) {
  return encoding == TextEncoding::utf8 && !bytes.starts_with(kGzip);
}

std::string read_table_head(const Path& file) {
  const InputFile opened(file);
  return read_up_to(opened, compression_of(opened), std::size_t{1} << 16);
}

TableText TableText::read(const std::vector<Path>& files, const CsvOptions& options,
                          const std::function<bool(std::string_view text)>& has_header) {
  TableText all = {.text = read_file(files.front(), options.encoding),
                   .files = {{files.front().string(), 1, 1}}};
  if (files.size() == 1) return all;
  CsvRows first(all.text, files.front().string(), options.separator);
  std::optional<std::vector<std::string>> header;
  if (has_header(all.text)) header = next_fields(first);
  std::int64_t lines = std::ranges::count(all.text, '\n');
  for (const Path& file : std::span(files).subspan(1)) {
    const std::string text = read_file(file, options.encoding);
    CsvRows rows(text, file.string(), options.separator);
    if (header) require_same_header(*header, files.front(), next_fields(rows), file);
    if (!all.text.ends_with('\n')) {
      all.text += '\n';
      ++lines;
    }
    all.files.push_back({file.string(), lines + 1, rows.next_line()});
    all.text += rows.rest();
    lines += std::ranges::count(rows.rest(), '\n');
  }
  return all;
}

}  // namespace lockstep::inline v0::data
