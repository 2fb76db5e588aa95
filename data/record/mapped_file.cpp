#include "data/record/mapped_file.h"

#include <sys/mman.h>

#include <utility>

namespace lockstep::data {

std::optional<MappedFile> MappedFile::map(const InputFile& file, std::size_t count) {
  if (count == 0) return std::nullopt;
  void* const begin = ::mmap(nullptr, count, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (begin == MAP_FAILED) return std::nullopt;
  MappedFile mapped(static_cast<const char*>(begin), count);
  if (!mapped.guard_) return std::nullopt;
  return mapped;
}

void MappedFile::release() const noexcept { ::madvise(const_cast<char*>(begin_), count_, MADV_DONTNEED); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)),
      count_(std::exchange(other.count_, 0)),
      guard_(std::move(other.guard_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(count_, other.count_);
  std::swap(guard_, other.guard_);
  return *this;
}

MappedFile::~MappedFile() {
  guard_ = MappingGuard();  // first: the address may be somebody else's as soon as it is free
  if (begin_ != nullptr) ::munmap(const_cast<char*>(begin_), count_);
}

}  // namespace lockstep::data
