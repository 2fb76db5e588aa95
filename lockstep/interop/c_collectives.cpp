// The collectives of the C interface.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/allreduce/letters/letter_thread.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"
#include "lockstep/interop/c_session.h"

struct lockstep_request {
  lockstep::allreduce::Request request;
};

namespace {

using lockstep::Error;
using lockstep::ErrorCategory;
using lockstep::allreduce::Communicator;
using lockstep::allreduce::ReduceOp;
using lockstep::interop::guarded;
using lockstep::interop::require;
using lockstep::interop::require_root;
namespace allreduce = lockstep::allreduce;
namespace job = lockstep::job;

using Collective = std::function<void(const Communicator&)>;

/// Makes a collective: in the background if the caller wants a request, else before it returns.
void run(const lockstep_session& session, lockstep_request** request, Collective collective) {
  job::Workers& workers = session.workers();
  if (request != nullptr) {
    *request = new lockstep_request{workers.submit(std::move(collective))};
    return;
  }
  workers.wait_pending();
  collective(workers.group());
}

/// A reduction with factors, for elements of one of the types of the interface.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double before = 1;
  double after = 1;
  bool is_fractional = false;  // also on one rank, where an average changes nothing

  Reduction(int op_number, double scale_before, double scale_after, int ranks, const char* function)
      : before(scale_before),
        after(scale_after),
        is_fractional(scale_before != 1 || scale_after != 1) {
    switch (op_number) {
      case LOCKSTEP_SUM:
        return;
      case LOCKSTEP_MAX:
        op = ReduceOp::max;
        return;
      case LOCKSTEP_MIN:
        op = ReduceOp::min;
        return;
      case LOCKSTEP_PRODUCT:
        op = ReduceOp::product;
        return;
      case LOCKSTEP_AVERAGE:
        after /= ranks;
        is_fractional = true;
        return;
      default:
        throw Error(ErrorCategory::input, function,
                    "expected LOCKSTEP_SUM, LOCKSTEP_MAX, LOCKSTEP_MIN, LOCKSTEP_PRODUCT or "
                    "LOCKSTEP_AVERAGE",
                    fmt::format("got {}", op_number));
    }
  }
};

/// Calls `body` with a span of `count` elements of `type`.
template <typename Body>
void with_elements(void* values, std::size_t count, int type, const char* function,
                   const Body& body) {
  const auto call = [&]<typename T>(T* first) { body(std::span(first, count)); };
  switch (type) {
    case LOCKSTEP_FLOAT32:
      return call(static_cast<float*>(values));
    case LOCKSTEP_FLOAT64:
      return call(static_cast<double*>(values));
    case LOCKSTEP_INT32:
      return call(static_cast<std::int32_t*>(values));
    case LOCKSTEP_INT64:
      return call(static_cast<std::int64_t*>(values));
    case LOCKSTEP_FLOAT16:
      return call(static_cast<lockstep::Float16*>(values));
    case LOCKSTEP_BFLOAT16:
      return call(static_cast<lockstep::BFloat16*>(values));
    case LOCKSTEP_UINT8:
      return call(static_cast<std::uint8_t*>(values));
    default:
      throw Error(ErrorCategory::input, function, "expected a type of enum lockstep_type",
                  fmt::format("got {}", type));
  }
}

template <typename T>
void require_scalable(const Reduction& reduction, const char* function) {
  if constexpr (!allreduce::Fractional<T>)
    if (reduction.is_fractional)
      throw Error(ErrorCategory::input, function,
                  "expected floating-point numbers for an average or a factor", "got integers");
}

template <typename T>
void scale(std::span<T> values, double factor) {
  if constexpr (allreduce::Fractional<T>) allreduce::scale(values, factor);
}

/// Calls copy(memory, array part) for the parts of arrays that [begin, begin + count) of all their
/// elements consists of.
template <typename T, typename Copy>
void for_parts(const std::vector<std::span<T>>& arrays, std::size_t begin, std::span<T> memory,
               const Copy& copy) {
  for (const std::span<T> array : arrays) {
    if (begin >= array.size()) {
      begin -= array.size();
      continue;
    }
    const std::size_t count = std::min(array.size() - begin, memory.size());
    copy(memory.first(count), array.subspan(begin, count));
    memory = memory.subspan(count);
    if (memory.empty()) return;
    begin = 0;
  }
}

// Arrays are copied through memory that the group reduces in place: in pieces that fit into the
// cache, or are long enough for a network.
constexpr std::size_t kPieceBytes = std::size_t{512} << 10;
constexpr std::size_t kMessageBytes = std::size_t{8} << 20;

template <typename T>
void reduce_arrays(lockstep_session& session, const Communicator& group,
                   const std::vector<std::span<T>>& arrays, ReduceOp op) {
  std::size_t total = 0;
  for (const std::span<T> array : arrays) total += array.size();
  if (group.size() == 1 || total == 0) return;
  const std::size_t most = (group.overlaps() ? kMessageBytes : kPieceBytes) / sizeof(T);
  auto* const first =
      reinterpret_cast<T*>(session.memory(group, std::min(total, most) * sizeof(T)));
  for (std::size_t begin = 0; begin < total; begin += most) {
    const std::span<T> piece(first, std::min(most, total - begin));
    for_parts(arrays, begin, piece, [](std::span<T> shared, std::span<T> own) {
      std::memcpy(shared.data(), own.data(), own.size_bytes());
    });
    group.all_reduce(piece, op).wait();
    for_parts(arrays, begin, piece, [](std::span<T> shared, std::span<T> own) {
      std::memcpy(own.data(), shared.data(), own.size_bytes());
    });
  }
}

/// Parts that arrive from all ranks, written one after another to the caller's memory.
struct Arrivals {
  void* all;
  std::size_t capacity;
  std::size_t* sizes;
  const char* function;

  // All ranks learn whether there is room on each, before any writes.
  void write(const Communicator& group, const std::vector<std::vector<std::byte>>& parts) const {
    std::size_t total = 0;
    for (std::size_t rank = 0; rank < parts.size(); ++rank)
      total += sizes[rank] = parts[rank].size();
    if (group.any(total > capacity))
      throw Error(ErrorCategory::input, function,
                  "expected room on every rank for all that arrives",
                  fmt::format("got {} bytes for {} on this rank", capacity, total));
    auto* at = static_cast<std::byte*>(all);
    for (const auto& part : parts) at = std::ranges::copy(part, at).out;
  }
};

/// A message between two ranks.
class Message final : public allreduce::PendingOperation {
 public:
  Message(std::shared_ptr<allreduce::LetterThread> letters,
          std::shared_ptr<allreduce::Letter> letter, int* source)
      : letters_(std::move(letters)), letter_(std::move(letter)), source_(source) {}

  void wait() override {
    letters_->wait(*letter_);
    if (source_ != nullptr) *source_ = letter_->source;
  }
  bool test() override { return letters_->test(*letter_); }
  void wait(lockstep::device::Stream& /*stream*/) override { wait(); }

 private:
  std::shared_ptr<allreduce::LetterThread> letters_;  // also after the end of the session
  std::shared_ptr<allreduce::Letter> letter_;
  int* source_;
};

std::shared_ptr<allreduce::LetterThread> letters_of(const lockstep_session& session,
                                                    const char* function) {
  if (auto letters = session.session().letters()) return letters;
  throw Error(ErrorCategory::input, function,
              "expected a session of several ranks that the program describes",
              "got another, which has collectives only");
}

/// Waits, unless the caller wants a request.
void complete(std::shared_ptr<allreduce::LetterThread> letters,
              std::shared_ptr<allreduce::Letter> letter, int* source, lockstep_request** request) {
  auto message = std::make_unique<Message>(std::move(letters), std::move(letter), source);
  if (request == nullptr) return message->wait();
  *request = new lockstep_request{allreduce::Request(std::move(message))};
}

}  // namespace

int lockstep_all_reduce_start(lockstep_session* session, void* values, size_t count, int type,
                              int op, double before, double after, lockstep_request** request) {
  constexpr const char* kFunction = "lockstep_all_reduce";
  return guarded([&] {
    require(session != nullptr && (values != nullptr || count == 0), kFunction,
            "expected a session and values");
    const Reduction reduction(op, before, after, session->size(), kFunction);
    with_elements(values, count, type, kFunction, [&]<typename T>(std::span<T> span) {
      require_scalable<T>(reduction, kFunction);
      run(*session, request, [=](const Communicator& group) {
        scale(span, reduction.before);
        group.all_reduce(span, reduction.op).wait();
        scale(span, reduction.after);
      });
    });
  });
}

int lockstep_grouped_all_reduce_start(lockstep_session* session, void* const* arrays,
                                      const size_t* counts, size_t number, int type, int op,
                                      double before, double after, lockstep_request** request) {
  constexpr const char* kFunction = "lockstep_grouped_all_reduce";
  return guarded([&] {
    require(session != nullptr && ((arrays != nullptr && counts != nullptr) || number == 0),
            kFunction, "expected a session, arrays and their sizes");
    for (std::size_t i = 0; i < number; ++i)
      require(arrays[i] != nullptr || counts[i] == 0, kFunction, "expected arrays");
    const Reduction reduction(op, before, after, session->size(), kFunction);
    with_elements(nullptr, 0, type, kFunction, [&]<typename T>(std::span<T> /*none*/) {
      require_scalable<T>(reduction, kFunction);
      std::vector<std::span<T>> spans;
      for (std::size_t i = 0; i < number; ++i)
        spans.emplace_back(static_cast<T*>(arrays[i]), counts[i]);
      run(*session, request, [=, spans = std::move(spans)](const Communicator& group) {
        for (const std::span<T> span : spans) scale(span, reduction.before);
        reduce_arrays(*session, group, spans, reduction.op);
        for (const std::span<T> span : spans) scale(span, reduction.after);
      });
    });
  });
}

int lockstep_all_reduce(lockstep_session* session, void* values, size_t count, int type, int op) {
  return lockstep_all_reduce_start(session, values, count, type, op, 1, 1, nullptr);
}

int lockstep_reduce_scatter_start(lockstep_session* session, void* values, size_t count, int type,
                                  int op, size_t* begin, size_t* end, lockstep_request** request) {
  constexpr const char* kFunction = "lockstep_reduce_scatter";
  return guarded([&] {
    require(session != nullptr && (values != nullptr || count == 0) && begin != nullptr &&
                end != nullptr,
            kFunction, "expected a session, values and pointers for their part");
    const Reduction reduction(op, 1, 1, session->size(), kFunction);
    with_elements(values, count, type, kFunction, [&]<typename T>(std::span<T> span) {
      require_scalable<T>(reduction, kFunction);
      const auto part = session->workers().group().slice<T>(count, session->rank());
      *begin = part.begin;
      *end = part.end;
      run(*session, request, [=](const Communicator& group) {
        group.reduce_scatter(span, reduction.op).wait();
        scale(span.subspan(part.begin, part.end - part.begin), reduction.after);
      });
    });
  });
}

int lockstep_reduce_scatter(lockstep_session* session, void* values, size_t count, int type, int op,
                            size_t* begin, size_t* end) {
  return lockstep_reduce_scatter_start(session, values, count, type, op, begin, end, nullptr);
}

int lockstep_broadcast_start(lockstep_session* session, void* values, size_t bytes, int root,
                             lockstep_request** request) {
  constexpr const char* kFunction = "lockstep_broadcast";
  return guarded([&] {
    require(session != nullptr && (values != nullptr || bytes == 0), kFunction,
            "expected a session and values");
    require_root(root, session->workers(), kFunction);
    run(*session, request, [=](const Communicator& group) {
      group.broadcast({static_cast<std::byte*>(values), bytes}, root);
    });
  });
}

int lockstep_broadcast(lockstep_session* session, void* values, size_t bytes, int root) {
  return lockstep_broadcast_start(session, values, bytes, root, nullptr);
}

int lockstep_all_gather(lockstep_session* session, const void* values, size_t bytes, void* all) {
  return guarded([&] {
    require(session != nullptr && ((values != nullptr && all != nullptr) || bytes == 0),
            "lockstep_all_gather", "expected a session, values and a result buffer");
    auto* at = static_cast<std::byte*>(all);
    for (const auto& part :
         session->workers().all_gather(std::span(static_cast<const std::byte*>(values), bytes))) {
      if (part.size() != bytes)
        throw Error(ErrorCategory::communication, "lockstep_all_gather",
                    "expected the same number of bytes on all ranks",
                    fmt::format("got {} on this rank and {} on another", bytes, part.size()));
      if (bytes > 0) std::memcpy(at, part.data(), bytes);
      at += bytes;
    }
  });
}

int lockstep_all_gather_unequal_start(lockstep_session* session, const void* values, size_t bytes,
                                      void* all, size_t capacity, size_t* sizes,
                                      lockstep_request** request) {
  constexpr const char* kFunction = "lockstep_all_gather_unequal";
  return guarded([&] {
    require(session != nullptr && (values != nullptr || bytes == 0) &&
                (all != nullptr || capacity == 0) && sizes != nullptr,
            kFunction, "expected a session, values, a result buffer and an array for the sizes");
    run(*session, request, [=](const Communicator& group) {
      Arrivals{all, capacity, sizes, kFunction}.write(
          group, group.all_gather(std::span(static_cast<const std::byte*>(values), bytes)));
    });
  });
}

int lockstep_all_gather_unequal(lockstep_session* session, const void* values, size_t bytes,
                                void* all, size_t capacity, size_t* sizes) {
  return lockstep_all_gather_unequal_start(session, values, bytes, all, capacity, sizes, nullptr);
}

int lockstep_all_to_all_start(lockstep_session* session, const void* values, const size_t* bytes,
                              void* all, size_t capacity, size_t* sizes,
                              lockstep_request** request) {
  constexpr const char* kFunction = "lockstep_all_to_all";
  return guarded([&] {
    require(session != nullptr && bytes != nullptr && (all != nullptr || capacity == 0) &&
                sizes != nullptr,
            kFunction, "expected a session, values, a result buffer and arrays for the sizes");
    std::vector<std::span<const std::byte>> parts;
    const auto* at = static_cast<const std::byte*>(values);
    for (int rank = 0; rank < session->size(); ++rank) {
      require(at != nullptr || bytes[rank] == 0, kFunction, "expected values");
      parts.emplace_back(at, bytes[rank]);
      at += bytes[rank];
    }
    run(*session, request, [=](const Communicator& group) {
      Arrivals{all, capacity, sizes, kFunction}.write(group, group.all_to_all(parts));
    });
  });
}

int lockstep_all_to_all(lockstep_session* session, const void* values, const size_t* bytes,
                        void* all, size_t capacity, size_t* sizes) {
  return lockstep_all_to_all_start(session, values, bytes, all, capacity, sizes, nullptr);
}

int lockstep_send_start(lockstep_session* session, const void* values, size_t bytes, int to,
                        int tag, lockstep_request** request) {
  constexpr const char* kFunction = "lockstep_send";
  return guarded([&] {
    require(session != nullptr && (values != nullptr || bytes == 0), kFunction,
            "expected a session and values");
    const auto letters = letters_of(*session, kFunction);
    complete(letters,
             letters->send(to, tag, std::span(static_cast<const std::byte*>(values), bytes)),
             nullptr, request);
  });
}

int lockstep_receive_start(lockstep_session* session, void* values, size_t bytes, int from, int tag,
                           int* source, lockstep_request** request) {
  constexpr const char* kFunction = "lockstep_receive";
  return guarded([&] {
    require(session != nullptr && (values != nullptr || bytes == 0), kFunction,
            "expected a session and memory");
    const auto letters = letters_of(*session, kFunction);
    complete(letters,
             letters->receive(from, tag, std::span(static_cast<std::byte*>(values), bytes)), source,
             request);
  });
}

int lockstep_wait(lockstep_request* request) {
  return guarded([&] {
    require(request != nullptr, "lockstep_wait", "expected a request");
    const std::unique_ptr<lockstep_request> ended(request);
    ended->request.wait();
  });
}

int lockstep_test(lockstep_request* request, int* done) {
  return guarded([&] {
    require(request != nullptr && done != nullptr, "lockstep_test",
            "expected a request and a pointer for the result");
    *done = request->request.test() ? 1 : 0;
  });
}

int lockstep_barrier(lockstep_session* session) {
  return guarded([&] {
    require(session != nullptr, "lockstep_barrier", "expected a session");
    session->workers().barrier();
  });
}

int lockstep_any(lockstep_session* session, int mine, int* result) {
  return guarded([&] {
    require(session != nullptr && result != nullptr, "lockstep_any",
            "expected a session and a pointer for the result");
    *result = session->workers().any(mine != 0) ? 1 : 0;
  });
}
