#include "lockstep/base/trace/events.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "lockstep/base/enum_names.h"

namespace lockstep::inline v0::trace {
namespace {

constexpr auto kKinds = enum_names<EventKind>({{EventKind::begin, "begin"},
                                               {EventKind::end, "end"},
                                               {EventKind::lap, "lap"},
                                               {EventKind::mark, "mark"}});

constexpr int kNumberBits = 24;
constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;
constexpr int kKindBits = 8;
constexpr std::uint64_t kKindMask = (std::uint64_t{1} << kKindBits) - 1;
constexpr std::size_t kMaxNames = 16'384;

std::int64_t nanoseconds_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Event i is in slot i modulo kRingEvents. Written by one thread. The writer publishes event i
/// (count_) before it begins event i + 1, and all stores are releases: a reader that has seen any
/// part of event i + kRingEvents in the slot of event i then also sees a count above
/// i + kRingEvents - 1, and drops what it has read.
class Ring {
 public:
  void add(EventKind kind, const char* name, std::int32_t number, std::uint64_t sequence,
           std::int64_t step) {
    const std::uint64_t count = count_.load(std::memory_order_relaxed);
    Slot& slot = slots_[count % kRingEvents];
    slot.time.store(nanoseconds_now(), std::memory_order_release);
    slot.name.store(name, std::memory_order_release);
    slot.step_and_number.store(static_cast<std::uint64_t>(step) << kNumberBits |
                                   (static_cast<std::uint32_t>(number) & kNumberMask),
                               std::memory_order_release);
    slot.sequence_and_kind.store(sequence << kKindBits | static_cast<std::uint8_t>(kind),
                                 std::memory_order_release);
    count_.store(count + 1, std::memory_order_release);
  }

  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }

  /// Appends the events from number `from` on to `events`. Returns the number of the first one.
  std::uint64_t read(std::uint64_t from, std::vector<Event>& events) const {
    const std::uint64_t end = count();
    from = std::max(from, end > kRingEvents ? end - kRingEvents : 0);
    const std::size_t before = events.size();
    for (std::uint64_t i = from; i < end; ++i) events.push_back(slots_[i % kRingEvents].event());
    const std::uint64_t now = count();
    // Event `now` may be half written.
    const std::uint64_t intact = std::min(end, now >= kRingEvents ? now - kRingEvents + 1 : 0);
    if (intact > from)
      events.erase(events.begin() + static_cast<std::ptrdiff_t>(before),
                   events.begin() + static_cast<std::ptrdiff_t>(before + (intact - from)));
    return std::max(from, intact);
  }

 private:
  struct Slot {
    std::atomic<std::int64_t> time{0};
    std::atomic<const char*> name{""};
    std::atomic<std::uint64_t> step_and_number{0};
    std::atomic<std::uint64_t> sequence_and_kind{0};

    Event event() const {
      Event event;
      event.time = time.load(std::memory_order_acquire);
      event.name = name.load(std::memory_order_acquire);
      const std::uint64_t position = step_and_number.load(std::memory_order_acquire);
      const std::uint64_t identity = sequence_and_kind.load(std::memory_order_acquire);
      event.step = static_cast<std::int64_t>(position >> kNumberBits);
      constexpr int kUnused = 32 - kNumberBits;  // extends the sign
      event.number =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(position) << kUnused) >> kUnused;
      event.sequence = identity >> kKindBits;
      event.kind = static_cast<EventKind>(identity & kKindMask);
      return event;
    }
  };

  std::array<Slot, kRingEvents> slots_{};
  alignas(64) std::atomic<std::uint64_t> count_{0};
};

struct OwnedRing {
  std::unique_ptr<Ring> ring;
  std::string name;     // name of its threads
  std::string thread;   // unique name: numbered if other rings have the same name
  bool is_used = true;  // whether its thread is running
};

struct Registry {
  std::mutex mutex;
  std::vector<OwnedRing> rings;  // never removed: a Collector refers to them by index
  std::set<std::string, std::less<>> names;
};

/// Never destroyed: threads may record until the process has ended.
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

std::atomic<std::int64_t> step_of_process{0};
std::atomic<int> collectors{0};

struct ThreadName {
  const char* name = nullptr;
  int number = -1;
};

thread_local Ring* ring_of_thread = nullptr;
thread_local bool is_without_ring = false;  // the thread has ended, or no ring was available
thread_local ThreadName name_of_thread;

std::string text_of(const ThreadName& thread) {
  const char* const unnamed = ::gettid() == ::getpid() ? "main" : "thread";
  const std::string name = thread.name != nullptr ? thread.name : unnamed;
  return thread.number < 0 ? name : fmt::format("{} {}", name, thread.number);
}

void release(const Ring* ring) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (OwnedRing& one : all.rings)
    if (one.ring.get() == ring) one.is_used = false;
}

/// Releases the ring when the thread ends.
struct RingOfThread {
  ~RingOfThread() {
    is_without_ring = true;
    if (ring_of_thread != nullptr) release(std::exchange(ring_of_thread, nullptr));
  }
};

Ring* find_ring() noexcept try {
  thread_local const RingOfThread releases_ring;
  static_cast<void>(&releases_ring);
  const std::string name = text_of(name_of_thread);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  int others = 0;
  for (OwnedRing& one : all.rings) {
    if (one.name != name) continue;
    ++others;
    if (one.is_used) continue;
    one.is_used = true;
    return one.ring.get();
  }
  if (all.rings.size() == kMaxThreads) return nullptr;
  all.rings.push_back({.ring = std::make_unique<Ring>(),
                       .name = name,
                       .thread = others == 0 ? name : fmt::format("{} #{}", name, others + 1)});
  return all.rings.back().ring.get();
} catch (const std::bad_alloc&) {
  return nullptr;
}

void read_rings(std::vector<ThreadEvents>& threads) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  threads.resize(all.rings.size());
  for (std::size_t i = 0; i < threads.size(); ++i) {
    ThreadEvents& thread = threads[i];
    thread.thread = all.rings[i].thread;
    const std::size_t before = thread.events.size();
    const std::uint64_t first = all.rings[i].ring->read(thread.recorded, thread.events);
    thread.lost += first - thread.recorded;
    thread.recorded = first + (thread.events.size() - before);
  }
}

}  // namespace

std::string_view to_string(EventKind kind) { return kKinds.name(kind); }

void record(EventKind kind, const char* name, std::int32_t number,
            std::uint64_t sequence) noexcept {
  if (ring_of_thread == nullptr) {
    if (is_without_ring) return;
    ring_of_thread = find_ring();
    is_without_ring = ring_of_thread == nullptr;
    if (is_without_ring) return;
  }
  ring_of_thread->add(kind, name, number, sequence,
                      step_of_process.load(std::memory_order_relaxed));
}

void set_step(std::int64_t step) noexcept {
  step_of_process.store(step, std::memory_order_relaxed);
}

std::int64_t current_step() noexcept { return step_of_process.load(std::memory_order_relaxed); }

void name_thread(const char* name, int number) noexcept {
  name_of_thread = {name, number};
  if (ring_of_thread != nullptr) release(std::exchange(ring_of_thread, nullptr));
}

const char* intern(std::string_view name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (const auto found = all.names.find(name); found != all.names.end()) return found->c_str();
  if (all.names.size() >= kMaxNames) return "(more names)";
  return all.names.emplace(name).first->c_str();
}

std::vector<ThreadEvents> recorded_events() {
  std::vector<ThreadEvents> threads;
  read_rings(threads);
  return threads;
}

bool is_collecting() noexcept { return collectors.load(std::memory_order_relaxed) > 0; }

Collector::Collector() {
  collect();
  for (ThreadEvents& thread : threads_) {
    thread.events.clear();
    thread.lost = 0;
  }
  size_ = 0;
  collectors.fetch_add(1, std::memory_order_relaxed);
}

Collector::~Collector() { collectors.fetch_sub(1, std::memory_order_relaxed); }

void Collector::collect() {
  // A ring that was created after the first collection begins with its event 0.
  read_rings(threads_);
  size_ = 0;
  for (const ThreadEvents& thread : threads_) size_ += thread.events.size();
}

}  // namespace lockstep::inline v0::trace
