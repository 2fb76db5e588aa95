#include "lockstep/data/record/mapped_file.h"

#include <fmt/format.h>

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::data {

/// Free while `begin` is 0. `end` is set before `begin`; only the slot's owner changes them.
struct MappingGuard::Slot {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<bool> is_intact{true};
};

namespace {

// A signal handler receives only the signal, so its data must be reachable without an object.
std::array<MappingGuard::Slot, MappingGuard::kMaxGuards> slots;
std::uintptr_t page_bytes = 0;
struct sigaction handler_before = {};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free &&
                  std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch lock-free atomics only");

/// Maps zeros over the page of `address` if it belongs to a guarded mapping. The mapping exists
/// during this call: the interrupted thread is reading it.
bool cover(void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  for (MappingGuard::Slot& slot : slots) {
    const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= slot.end.load(std::memory_order_acquire))
      continue;
    if (slot.begin.load(std::memory_order_relaxed) != begin)
      continue;  // reassigned to another mapping in the meantime
    slot.is_intact.store(false, std::memory_order_release);
    void* const page = static_cast<char*>(at) - (address & (page_bytes - 1));
    const int error = errno;
    void* const zeros = ::mmap(page, page_bytes, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    errno = error;
    return zeros == page;
  }
  return false;
}

void pass_on(int signal, siginfo_t* info, void* context) {
  if ((handler_before.sa_flags & SA_SIGINFO) != 0)
    return handler_before.sa_sigaction(signal, info, context);
  if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN)
    return handler_before.sa_handler(signal);
  const bool is_sent = info->si_code <= 0;
  if (is_sent && handler_before.sa_handler == SIG_IGN) return;
  struct sigaction without = {};
  without.sa_handler = SIG_DFL;
  ::sigaction(signal, &without, nullptr);
  // A failed instruction fails again on return, then with the default action; a signal sent by a
  // process must be raised again.
  if (is_sent) ::raise(signal);
}

extern "C" void handle_bus_error(int signal, siginfo_t* info, void* context) {
  // A positive code comes from the kernel; a signal sent by a process has no address.
  if (info->si_code > 0 && cover(info->si_addr)) return;
  pass_on(signal, info, context);
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == handle_bus_error;
}

void install_handler() {
  page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  // Read before it is needed: a signal may arrive as soon as the handler is installed.
  if (::sigaction(SIGBUS, nullptr, &handler_before) != 0) return;
  struct sigaction action = {};
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

/// It is not reinstalled if other code has replaced it: two handlers that forward signals to each
/// other would loop.
bool is_handler_installed() {
  struct sigaction now = {};
  return ::sigaction(SIGBUS, nullptr, &now) == 0 && is_ours(now);
}

}  // namespace

void enable_mapped_files() {
  static std::once_flag once;
  std::call_once(once, install_handler);
}

MappingGuard::MappingGuard(const void* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  LOCKSTEP_CHECK(address != 0);
  if (!is_handler_installed()) return;
  LOCKSTEP_CHECK_OP(address % page_bytes, ==, 0u);
  constexpr std::uintptr_t kTaken = ~std::uintptr_t{0};  // above every address
  for (Slot& slot : slots) {
    std::uintptr_t free = 0;
    if (!slot.begin.compare_exchange_strong(free, kTaken)) continue;
    slot.is_intact.store(true, std::memory_order_relaxed);
    slot.end.store(address + bytes, std::memory_order_relaxed);
    slot.begin.store(address, std::memory_order_release);
    slot_ = &slot;
    return;
  }
}

MappingGuard::MappingGuard(MappingGuard&& other) noexcept
    : slot_(std::exchange(other.slot_, nullptr)) {}

MappingGuard& MappingGuard::operator=(MappingGuard&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

MappingGuard::~MappingGuard() {
  if (slot_ != nullptr) slot_->begin.store(0, std::memory_order_release);
}

bool MappingGuard::is_intact() const noexcept {
  return slot_ == nullptr || slot_->is_intact.load(std::memory_order_acquire);
}

std::optional<MappedFile> MappedFile::map(const InputFile& file, std::size_t count) {
  if (count == 0) return std::nullopt;
  void* const begin = ::mmap(nullptr, count, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (begin == MAP_FAILED) return std::nullopt;
  MappedFile mapped(static_cast<const char*>(begin), count);
  if (!mapped.guard_) return std::nullopt;
  return mapped;
}

void MappedFile::release() const noexcept {
  ::madvise(const_cast<char*>(begin_), count_, MADV_DONTNEED);
}

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
  guard_ = MappingGuard();  // first: the address may be reused as soon as it is unmapped
  if (begin_ != nullptr) ::munmap(const_cast<char*>(begin_), count_);
}

}  // namespace lockstep::inline v0::data
