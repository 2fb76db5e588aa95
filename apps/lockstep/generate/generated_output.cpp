#include "apps/lockstep/generate/generated_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "apps/lockstep/process_setup.h"

namespace lockstep::inline v0::apps {

GeneratedOutput::GeneratedOutput(const Options& options)
    : is_shown_(options.path == "-" && options.is_shown), are_lines_(options.are_lines) {
  if (options.path != "-") file_.emplace(options.path);
}

void GeneratedOutput::write(std::string piece) {
  if (are_lines_) std::ranges::replace(piece, '\n', ' ');
  write_raw(piece);
}

void GeneratedOutput::end_text() {
  if (are_lines_)
    write_raw("\n");
  else if (is_shown_ && !ends_line_)
    fmt::print("\n");
}

void GeneratedOutput::commit() {
  if (file_) file_->commit();
}

void GeneratedOutput::write_raw(const std::string& piece) {
  if (file_) file_->write(piece);
  if (!is_shown_ || piece.empty()) return;
  print_exactly(piece);
  std::fflush(stdout);  // show each piece immediately
  ends_line_ = piece.ends_with('\n');
}

}  // namespace lockstep::inline v0::apps
