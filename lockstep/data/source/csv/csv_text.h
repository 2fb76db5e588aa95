// The text of a table in one or several files.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/source/file_options.h"
#include "lockstep/data/table/csv_rows.h"

namespace lockstep::inline v0::data {

/// The files that the name of a table stands for, sorted: the file, or those that match a pattern.
/// Throws Error (data) for a pattern without files.
std::vector<std::filesystem::path> table_files(const std::filesystem::path& name);

/// Whether the bytes are UTF-8 as they are stored: neither a gzip file nor in another encoding.
bool is_stored_as_read(std::string_view bytes, TextEncoding encoding);

/// The first bytes of a file, decompressed if it is a gzip file.
std::string read_table_head(const std::filesystem::path& file);

/// The rows of several files, as if they were in one.
struct TableText {
  std::string text;              ///< in UTF-8, with at most one header
  std::vector<TableFile> files;  ///< where each begins

  /// Reads the files, some of which may be gzip files. `has_header` states of the text of the first
  /// one whether its first row is a header; the others then have the same. Throws Error (data) with
  /// file and column for another header, and the errors of check_table_text().
  static TableText read(const std::vector<std::filesystem::path>& files, const CsvOptions& options,
                        const std::function<bool(std::string_view text)>& has_header);
};

}  // namespace lockstep::inline v0::data
