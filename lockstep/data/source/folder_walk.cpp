#include "lockstep/data/source/folder_walk.h"

#include <algorithm>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, const std::error_code& error) {
  throw Error(ErrorCategory::data, folder.string(), "expected a readable folder", error.message());
}

fs::path resolved(const fs::path& folder) {
  std::error_code error;
  fs::path target = fs::canonical(folder, error);
  if (error) fail(folder, error);
  return target;
}

bool contains(const fs::path& outer, const fs::path& inner) {
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

}  // namespace

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

void for_files_below(const fs::path& folder, const std::function<bool(const fs::path&)>& use,
                     const std::function<void(const fs::path&)>& skipped) {
  const fs::path root = resolved(folder);
  std::set<fs::path> entered = {root};
  std::vector<fs::path> links;
  const auto walk = [&](const fs::path& path, const fs::path& target) {
    std::error_code error;
    for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code ignored;
      const bool hidden = is_hidden(entry->path());
      if (!entry->is_directory(ignored)) {
        if (!hidden && !use(entry->path())) return false;
      } else if (hidden) {
        entry.disable_recursion_pending();
      } else if (entry->is_symlink(ignored)) {
        links.push_back(entry->path());
      } else if (!entered.insert(target / entry->path().lexically_relative(path)).second) {
        entry.disable_recursion_pending();
      }
    }
    if (error) fail(path, error);
    return true;
  };
  if (!walk(folder, root)) return;
  while (!links.empty()) {
    // Links are followed last, so that no file gets another name through one.
    std::vector<fs::path> found = std::exchange(links, {});
    std::ranges::sort(found);
    for (const fs::path& link : found) {
      const fs::path target = resolved(link);
      const bool is_new = !contains(target, root) && entered.insert(target).second;
      if (is_new && !walk(link, target)) return;
      if (!is_new && skipped) skipped(link);
    }
  }
}

}  // namespace lockstep::inline v0::data
