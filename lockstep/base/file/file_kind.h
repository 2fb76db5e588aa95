// Detects the format of a file by its first bytes, for errors of readers that expect another one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {

/// The format of a file, as far as its first bytes show it.
struct FileKind {
  enum class Content {
    unknown,
    text,  ///< plain text or a table
    json,
    markup,       ///< HTML, XML
    placeholder,  ///< text that stands for another file, such as a Git LFS pointer
    torch,        ///< what torch.save writes
    arrays,       ///< named arrays of numbers in a format of another program
    image,        ///< an image in any format, supported or not
    other,        ///< another binary format
  };
  Content content = Content::unknown;
  std::string_view name = {};  ///< "a gzip file: decompress it"; empty if unknown

  bool is_known() const { return content != Content::unknown; }
  /// Whether the file cannot be text.
  bool is_no_text() const { return content >= Content::placeholder; }
  /// Whether the file cannot be a table.
  bool is_no_table() const { return content >= Content::json; }
};

/// The number of first bytes of a file that file_kind() reads; most kinds need only a few.
inline constexpr std::size_t kFileKindBytes = 512;

/// The kind of a file that begins with `head`.
FileKind file_kind(std::string_view head);

/// Throws Error(category, path, `expected`, "got a gzip file: decompress it").
[[noreturn]] void refuse_kind(const std::filesystem::path& path, const FileKind& kind,
                              std::string_view expected,
                              ErrorCategory category = ErrorCategory::data);

}  // namespace lockstep::inline v0
