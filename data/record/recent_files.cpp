#include "data/record/recent_files.h"

#include <algorithm>

namespace lockstep::data {

/// A rank that reads every 16th file has all groups too.
std::size_t RecentFiles::group_of(std::size_t number) { return (number + number / kGroups) % kGroups; }

/// The caller holds the group's mutex.
std::shared_ptr<const RecordFile> RecentFiles::find(Group& group, std::size_t number) {
  const auto found = std::ranges::find(group.files, number, &File::first);
  if (found == group.files.end()) return nullptr;
  std::rotate(group.files.begin(), found, found + 1);
  return group.files.front().second;
}

std::shared_ptr<const RecordFile> RecentFiles::get(std::size_t number) const {
  Group& group = groups_[group_of(number)];
  {
    const std::lock_guard lock(group.mutex);
    if (auto file = find(group, number)) return file;
  }
  // Opening may take long; others go on meanwhile, and may even open the same file.
  auto opened = std::make_shared<const RecordFile>(open_(number));
  std::shared_ptr<const RecordFile> oldest;  // closed outside of the lock
  const std::lock_guard lock(group.mutex);
  if (auto file = find(group, number)) return file;
  if (group.files.size() == kMostOfGroup) {
    oldest = std::move(group.files.back().second);
    group.files.pop_back();
  }
  group.files.insert(group.files.begin(), {number, opened});
  return opened;
}

}  // namespace lockstep::data
