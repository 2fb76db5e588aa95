#include "data/record/read_window.h"

#include <algorithm>
#include <cstring>

namespace lockstep::data {

std::string_view ReadWindow::read(const InputFile& file, const FileIdentity& identity, std::uint64_t offset,
                                  std::size_t count) {
  if (identity_ != identity) {
    identity_ = identity;
    held_ = 0;
    run_ = next_ = offset;
  }
  if (offset != next_) run_ = offset;
  next_ = offset + count;
  const bool is_held = offset >= begin_ && offset - begin_ <= held_ && held_ - (offset - begin_) >= count;
  if (!is_held) refill(file, offset, count);
  const std::size_t at = offset - begin_;
  return {buffer_.data() + at, std::min(count, held_ - at)};
}

/// Makes the window begin at `offset`; what it holds from there on is not read again.
void ReadWindow::refill(const InputFile& file, std::uint64_t offset, std::size_t count) {
  const std::size_t want = std::max<std::size_t>(count, std::min<std::uint64_t>(offset - run_, kLargestAhead));
  std::size_t kept = 0;
  if (offset >= begin_ && offset - begin_ < held_) {
    kept = held_ - (offset - begin_);
    std::memmove(buffer_.data(), buffer_.data() + (offset - begin_), kept);
  }
  held_ = 0;  // until the file has been read
  if (buffer_.size() < want) buffer_.resize(want);
  const std::size_t got = file.read_at(offset + kept, buffer_.data() + kept, want - kept);
  begin_ = offset;
  held_ = kept + got;
}

}  // namespace lockstep::data
