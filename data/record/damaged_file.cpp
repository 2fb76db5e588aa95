#include "data/record/damaged_file.h"

#include <fmt/format.h>

namespace lockstep::data {

std::string DamagedFile::text() const {
  return fmt::format("{}: {}; the last {} bytes are left out", location.text(), kind, bytes_left_out);
}

}  // namespace lockstep::data
