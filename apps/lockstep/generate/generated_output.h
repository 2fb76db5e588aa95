// Output of generated texts.
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/file/atomic_file.h"

namespace lockstep::inline v0::apps {

/// Writes generated texts, piece by piece, to a file or to standard output.
class GeneratedOutput {
 public:
  struct Options {
    std::string path = "-";  ///< "-" is standard output
    bool is_shown = true;    ///< whether standard output is written
    bool are_lines = false;  ///< each text is a line; its line breaks become spaces
  };
  /// Opens the file, which appears with commit(). Throws the errors of AtomicFile.
  explicit GeneratedOutput(const Options& options);

  void write(std::string piece);  ///< flushes standard output
  void end_text();                ///< ends the current text
  void commit();                  ///< completes the file

 private:
  void write_raw(const std::string& piece);

  std::optional<AtomicFile> file_;
  bool is_shown_;
  bool are_lines_;
  bool ends_line_ = false;  // whether the shown text ends with a line break
};

}  // namespace lockstep::inline v0::apps
