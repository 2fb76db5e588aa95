// The flight recorder: the last events of every thread of this process, in memory.
//
// Each thread that records has a ring of its own, which only it writes, without locks and without
// allocation after the first event; any thread may read all rings at any time. Recording an event
// costs one clock reading and four stores. Recordings (recording.h) and traces (trace_file.h)
// are made from the rings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::inline v0::trace {

inline constexpr std::size_t kRingEvents = 4096;  ///< capacity of each thread's ring
inline constexpr std::size_t kMaxThreads = 256;  ///< threads that have a ring; others do not record

/// What an event is.
enum class EventKind : std::uint8_t {
  begin,  ///< begins a span, which the next unmatched `end` of its thread ends
  end,    ///< ends a span
  /// Begins a piece of work that lasts until the next lap or the end of the enclosing span. With an
  /// empty name, only ends the previous lap.
  lap,
  mark,  ///< a point in time
};
/// "begin", "end", "lap", "mark".
std::string_view to_string(EventKind kind);

/// One event.
struct Event {
  std::int64_t time = 0;             ///< nanoseconds of std::chrono::steady_clock
  const char* name = "";             ///< a string literal or a result of intern()
  EventKind kind = EventKind::mark;  ///< meaning of the event
  std::int32_t number = -1;          ///< such as a bucket, at most 23 bits; -1: none
  std::int64_t step = 0;             ///< value of set_step(), at most 40 bits; 0: before the first
  std::uint64_t sequence = 0;        ///< number of a collective, at most 56 bits; 0: none
};

/// Records an event of the calling thread. `name` must be a string literal or a result of intern().
/// Never throws: a thread without memory for its ring, or beyond kMaxThreads, does not record.
void record(EventKind kind, const char* name, std::int32_t number = -1,
            std::uint64_t sequence = 0) noexcept;

/// Begins a piece of work that ends with the next lap or with the enclosing span.
inline void lap(const char* name) noexcept { record(EventKind::lap, name); }
/// Ends the last lap.
inline void end_lap() noexcept { record(EventKind::lap, ""); }

/// Records the beginning and the end of a scope.
class Span {
 public:
  /// `name`: as for record().
  explicit Span(const char* name, std::int32_t number = -1) noexcept
      : name_(name), number_(number) {
    record(EventKind::begin, name_, number_);
  }
  ~Span() { record(EventKind::end, name_, number_); }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  const char* name_;
  std::int32_t number_;
};

/// Sets the step of all later events of this process, counted from 1; 0: none. Thread-safe.
void set_step(std::int64_t step) noexcept;
/// The current value of set_step().
std::int64_t current_step() noexcept;

/// Span of a thread that idles because it is ahead.
inline constexpr const char* kIdleSpan = "wait for a free batch";

/// Names the calling thread, such as "reading data" and its number; -1: none. `name` must be a
/// string literal. A thread without a name is "main" or "thread". A ring whose thread has ended is
/// continued by the next thread of the same name and number; concurrent threads of one name are
/// "reductions", "reductions #2".
void name_thread(const char* name, int number = -1) noexcept;

/// A copy of `name` that lives as long as the process, the same pointer for the same text. Acquires
/// a lock: not for every event. At most 16,384 texts; beyond them "(more names)".
const char* intern(std::string_view name);

/// The events of one thread, in order.
struct ThreadEvents {
  std::string thread;          ///< "main", "reading data 1", "reductions #2"; unique
  std::uint64_t recorded = 0;  ///< number of its events since the beginning
  std::uint64_t lost = 0;      ///< number of events before the first of `events` that were not read
  std::vector<Event> events;   ///< in the order of their times
};

/// The current contents of all rings, including those of ended threads. Thread-safe.
std::vector<ThreadEvents> recorded_events();

/// Whether a Collector exists. Events of single samples are recorded only then. Thread-safe.
bool is_collecting() noexcept;

/// Collects more events than the rings hold. Not thread-safe.
class Collector {
 public:
  /// Collects events from now on.
  Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;
  ~Collector();
  /// Appends the events since the last call. Call it at least once per kRingEvents events of a
  /// thread.
  void collect();
  /// Number of events collected.
  std::size_t size() const { return size_; }
  /// Collected events by thread.
  const std::vector<ThreadEvents>& threads() const { return threads_; }

 private:
  std::vector<ThreadEvents> threads_;  // in the order of the rings
  std::size_t size_ = 0;
};

}  // namespace lockstep::inline v0::trace
