// Files that are opened when they are needed, few at a time.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "data/record/record_file.h"

namespace lockstep::data {

/// The record files used last, by their numbers. Of any number of files no more than kMost are open, and those that a
/// thread still reads: the least recently used one goes. Thread-safe.
class RecentFiles {
 public:
  static constexpr std::size_t kMost = 256;  // a quarter of what a process may usually have open
  using Open = std::function<RecordFile(std::size_t number)>;

  /// `open` makes file `number`, by several threads at once; what it throws reaches the caller of get().
  explicit RecentFiles(Open open) : open_(std::move(open)) {}

  /// File `number`, which stays open as long as somebody holds it.
  std::shared_ptr<const RecordFile> get(std::size_t number) const;

 private:
  // Files are dealt to groups, so that threads seldom wait for each other.
  static constexpr std::size_t kGroups = 16;
  static constexpr std::size_t kMostOfGroup = kMost / kGroups;

  using File = std::pair<std::size_t, std::shared_ptr<const RecordFile>>;
  struct Group {
    std::mutex mutex;
    std::vector<File> files;  // the last used one first
  };

  static std::size_t group_of(std::size_t number);
  static std::shared_ptr<const RecordFile> find(Group& group, std::size_t number);

  Open open_;
  mutable std::array<Group, kGroups> groups_;
};

}  // namespace lockstep::data
