// Where generated texts go.
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/atomic_file.h"

namespace lockstep::apps {

/// Writes generated texts, piece by piece, to a file or to standard output.
class GeneratedOutput {
 public:
  struct Options {
    std::string path = "-";  ///< "-" is standard output
    bool is_shown = true;    ///< of standard output: false writes nothing
    bool are_lines = false;  ///< each text is a line; its line breaks become spaces
  };
  /// Opens the file, which appears with commit(). Throws the errors of AtomicFile.
  explicit GeneratedOutput(const Options& options);

  void write(std::string piece);  ///< standard output has it at once
  void end_text();                ///< what follows is another text
  void commit();                  ///< completes the file

 private:
  void put(const std::string& piece);

  std::optional<AtomicFile> file_;
  bool is_shown_;
  bool are_lines_;
  bool ends_line_ = false;  // what is shown so far
};

}  // namespace lockstep::apps
