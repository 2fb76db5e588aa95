#include "apps/lockstep/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::apps {
namespace {

double resident_share(int descriptor, std::size_t size) {
  void* const mapping = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapping == MAP_FAILED) return 1;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  const bool known = ::mincore(mapping, size, pages.data()) == 0;
  ::munmap(mapping, size);
  const auto resident = std::ranges::count_if(pages, [](unsigned char state) { return (state & 1) != 0; });
  return known ? static_cast<double>(resident) / static_cast<double>(pages.size()) : 1;
}

}  // namespace

double drop_from_page_cache(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    throw Error(ErrorCategory::data, file.string(), "needed a file that can be read",
                std::generic_category().message(errno));
  }
  ::fdatasync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  const auto size = static_cast<std::size_t>(std::filesystem::file_size(file));
  const double share = size == 0 ? 0 : resident_share(descriptor, size);
  ::close(descriptor);
  return share;
}

}  // namespace lockstep::apps
