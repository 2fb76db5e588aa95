#include "lockstep/interop/c_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"
#include "lockstep/interop/distributed_optimizer.h"
#include "lockstep/interop/gradient_reducer.h"
#include "lockstep/job/failure.h"
#include "lockstep/job/workers.h"

namespace {

using lockstep::Error;
using lockstep::ErrorCategory;
namespace allreduce = lockstep::allreduce;
namespace interop = lockstep::interop;
namespace job = lockstep::job;

constexpr const char* kCreate = "lockstep_optimizer_create";

void require(bool given, const char* function, const std::string& what) {
  if (!given) throw Error(ErrorCategory::input, function, what, "got NULL");
}

/// The values or the gradient of a parameter.
interop::NumberSpan numbers(const lockstep_parameter& parameter, void* first,
                            const char* function) {
  if (parameter.type == LOCKSTEP_FLOAT32) return {static_cast<float*>(first), parameter.elements};
  if (parameter.type == LOCKSTEP_FLOAT64) return {static_cast<double*>(first), parameter.elements};
  throw Error(
      ErrorCategory::input, function,
      fmt::format("expected {} of type LOCKSTEP_FLOAT32 or LOCKSTEP_FLOAT64", parameter.name),
      fmt::format("got {}", parameter.type));
}

/// The options of a caller who may have been compiled with an earlier version, whose struct is
/// shorter.
template <typename Options>
Options known_options(const Options* given, const Options& standard, const char* function) {
  if (given == nullptr) return standard;
  if (given->size < sizeof(given->size) || given->size > sizeof(Options))
    throw Error(ErrorCategory::input, function,
                fmt::format("expected options with a size of at most {} bytes, that of this "
                            "version of Lockstep: start from the defaults",
                            sizeof(Options)),
                fmt::format("got {}", given->size));
  Options options = standard;
  std::memcpy(&options, given, given->size);
  return options;
}

/// Adapts the caller's update function to OptimizerWithParameters.
class Callback {
 public:
  Callback(std::span<const lockstep_parameter> parameters, int (*update)(void*), void* state)
      : update_(update), state_(state) {
    for (const lockstep_parameter& parameter : parameters) {
      require_array(parameter, parameter.values, "values", kCreate);
      require_array(parameter, parameter.gradient, "a gradient", kCreate);
      parameters_.push_back({parameter.name, numbers(parameter, parameter.values, kCreate),
                             numbers(parameter, parameter.gradient, kCreate)});
    }
    require(update != nullptr, kCreate, "expected an update function");
  }
  const std::vector<interop::Parameter>& parameters() const { return parameters_; }
  void step() {
    const int status = update_(state_);
    if (status != 0)
      throw Error(ErrorCategory::input, "lockstep_step", "expected the update function to return 0",
                  fmt::format("got {}", status));
  }

  /// What state() returns from now on.
  void keep_state(std::span<const lockstep_parameter> state, const char* function) {
    state_values_.clear();
    for (const lockstep_parameter& one : state) {
      require_array(one, one.values, "values", function);
      const interop::NumberSpan values = numbers(one, one.values, function);
      state_values_.push_back({one.name, values, values});
    }
  }
  const std::vector<interop::Parameter>& state() const { return state_values_; }

 private:
  static void require_array(const lockstep_parameter& parameter, const void* first,
                            const char* what, const char* function) {
    require(parameter.name != nullptr, function, "expected a name for each parameter");
    require(first != nullptr || parameter.elements == 0, function,
            fmt::format("expected {} for each parameter", what));
  }

  std::vector<interop::Parameter> parameters_;
  std::vector<interop::Parameter> state_values_;
  int (*update_)(void*);
  void* state_;
};

std::string& last_error() {
  thread_local std::string error;
  return error;
}

// Exceptions must not cross the C interface. Statuses are those of the program (job/failure.h).
template <typename Body>
int guarded(const Body& body) {
  try {
    last_error().clear();
    body();
    return LOCKSTEP_OK;
  } catch (...) {
    const job::Failure failure = job::describe_current_exception();
    last_error() = failure.message;
    return failure.exit_status;
  }
}

// A root out of range would end the group (Workers::broadcast).
void require_root(int root, const job::Workers& workers, const char* function) {
  if (root < 0 || root >= workers.size())
    throw Error(ErrorCategory::input, function,
                fmt::format("expected a root from 0 to {}", workers.size() - 1),
                fmt::format("got {}", root));
}

allreduce::WireType wire_type(int type) {
  if (type == LOCKSTEP_FLOAT32) return allreduce::WireType::float32;
  if (type == LOCKSTEP_FLOAT16) return allreduce::WireType::float16;
  if (type == LOCKSTEP_BFLOAT16) return allreduce::WireType::bfloat16;
  throw Error(ErrorCategory::input, kCreate,
              "expected compression LOCKSTEP_FLOAT32, LOCKSTEP_FLOAT16 or LOCKSTEP_BFLOAT16",
              fmt::format("got {}", type));
}

interop::DistributedOptions to_options(const lockstep_options& options) {
  return {.reduction = options.sum != 0 ? interop::Reduction::sum : interop::Reduction::average,
          .backward_passes_per_step = options.backward_passes_per_step,
          .average_passes = options.sum_passes == 0,
          .compression = wire_type(options.compression),
          .bucket_bytes = options.bucket_bytes,
          .predivide_factor = options.predivide_factor,
          .clip_norm = options.clip_norm,
          .skip_non_finite = options.skip_non_finite != 0};
}

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
    default:
      throw Error(ErrorCategory::input, function, "expected a type of enum lockstep_type",
                  fmt::format("got {}", type));
  }
}

allreduce::ReduceOp reduce_op(int op, const char* function) {
  if (op == LOCKSTEP_SUM) return allreduce::ReduceOp::sum;
  if (op == LOCKSTEP_MAX) return allreduce::ReduceOp::max;
  if (op == LOCKSTEP_MIN) return allreduce::ReduceOp::min;
  if (op == LOCKSTEP_PRODUCT) return allreduce::ReduceOp::product;
  throw Error(ErrorCategory::input, function,
              "expected LOCKSTEP_SUM, LOCKSTEP_MAX, LOCKSTEP_MIN or LOCKSTEP_PRODUCT",
              fmt::format("got {}", op));
}

}  // namespace

struct lockstep_session {
  explicit lockstep_session(const job::SessionOptions& options) : session(options) {}

  job::Session session;
};

struct lockstep_optimizer {
  Callback inner;
  interop::DistributedOptimizer<Callback> distributed;

  lockstep_optimizer(job::Session& session, Callback callback,
                     const interop::DistributedOptions& options)
      : inner(std::move(callback)), distributed(session, inner, options) {
    distributed.reducer().keep_group_on_misuse();
  }
};

const char* lockstep_version(void) { return LOCKSTEP_VERSION; }

const char* lockstep_last_error(void) { return last_error().c_str(); }

lockstep_session_options lockstep_default_session_options(void) {
  return {sizeof(lockstep_session_options), job::WorkersOptions{}.stall_timeout, "auto", 0, -1, -1};
}

int lockstep_init(const lockstep_session_options* options, lockstep_session** session) {
  return guarded([&] {
    require(session != nullptr, "lockstep_init", "expected a pointer for the session");
    const lockstep_session_options given =
        known_options(options, lockstep_default_session_options(), "lockstep_init");
    require(given.all_reduce != nullptr, "lockstep_init", "expected the name of an all-reduce");
    job::SessionOptions wanted{.quiet = given.quiet != 0,
                               .stall_timeout = given.stall_timeout,
                               .workers = {.route = allreduce::parse_route(given.all_reduce),
                                           .stall_timeout = given.stall_timeout}};
    if (given.start_timeout >= 0) wanted.start_timeout = given.start_timeout;
    if (given.communicator != -1) wanted.communicator = given.communicator;
    *session = new lockstep_session(wanted);
  });
}

void lockstep_still_at_work(lockstep_session* session) {
  if (session != nullptr) session->session.activity().tick();
}

void lockstep_finalize(lockstep_session* session) { delete session; }

int lockstep_rank(const lockstep_session* session) {
  return session ? session->session.rank() : -1;
}
int lockstep_world_size(const lockstep_session* session) {
  return session ? session->session.world_size() : -1;
}
int lockstep_local_rank(const lockstep_session* session) {
  return session ? session->session.local_rank() : -1;
}
int lockstep_local_size(const lockstep_session* session) {
  return session ? session->session.local_size() : -1;
}
int lockstep_node(const lockstep_session* session) {
  return session ? session->session.node() : -1;
}

int lockstep_all_reduce(lockstep_session* session, void* values, size_t count, int type, int op) {
  return guarded([&] {
    require(session != nullptr && (values != nullptr || count == 0), "lockstep_all_reduce",
            "expected a session and values");
    const allreduce::ReduceOp operation = reduce_op(op, "lockstep_all_reduce");
    job::Workers& workers = session->session.workers();
    with_elements(values, count, type, "lockstep_all_reduce",
                  [&](auto span) { workers.all_reduce(span, operation); });
  });
}

int lockstep_reduce_scatter(lockstep_session* session, void* values, size_t count, int type, int op,
                            size_t* begin, size_t* end) {
  return guarded([&] {
    require(session != nullptr && (values != nullptr || count == 0) && begin != nullptr &&
                end != nullptr,
            "lockstep_reduce_scatter", "expected a session, values and pointers for their part");
    const allreduce::ReduceOp operation = reduce_op(op, "lockstep_reduce_scatter");
    job::Workers& workers = session->session.workers();
    with_elements(values, count, type, "lockstep_reduce_scatter",
                  [&]<typename T>(std::span<T> span) {
                    workers.wait_pending();
                    workers.group().reduce_scatter(span, operation).wait();
                    const auto part = workers.group().slice<T>(span.size(), workers.rank());
                    *begin = part.begin;
                    *end = part.end;
                  });
  });
}

int lockstep_broadcast(lockstep_session* session, void* values, size_t bytes, int root) {
  return guarded([&] {
    require(session != nullptr && (values != nullptr || bytes == 0), "lockstep_broadcast",
            "expected a session and values");
    job::Workers& workers = session->session.workers();
    require_root(root, workers, "lockstep_broadcast");
    workers.broadcast(std::span(static_cast<std::byte*>(values), bytes), root);
  });
}

int lockstep_all_gather(lockstep_session* session, const void* values, size_t bytes, void* all) {
  return guarded([&] {
    require(session != nullptr && ((values != nullptr && all != nullptr) || bytes == 0),
            "lockstep_all_gather", "expected a session, values and a result buffer");
    auto* at = static_cast<std::byte*>(all);
    for (const auto& part : session->session.workers().all_gather(
             std::span(static_cast<const std::byte*>(values), bytes))) {
      if (part.size() != bytes)
        throw Error(ErrorCategory::communication, "lockstep_all_gather",
                    "expected the same number of bytes on all ranks",
                    fmt::format("got {} on this rank and {} on another", bytes, part.size()));
      if (bytes > 0) std::memcpy(at, part.data(), bytes);
      at += bytes;
    }
  });
}

int lockstep_all_gather_unequal(lockstep_session* session, const void* values, size_t bytes,
                                void* all, size_t capacity, size_t* sizes) {
  return guarded([&] {
    require(session != nullptr && (values != nullptr || bytes == 0) &&
                (all != nullptr || capacity == 0) && sizes != nullptr,
            "lockstep_all_gather_unequal",
            "expected a session, values, a result buffer and an array for the sizes");
    job::Workers& workers = session->session.workers();
    std::size_t total = 0;
    for (int rank = 0;
         const auto& one : workers.all_gather(std::span<const std::size_t>(&bytes, 1)))
      total += sizes[rank++] = one.at(0);
    if (workers.any(total > capacity))
      throw Error(ErrorCategory::input, "lockstep_all_gather_unequal",
                  fmt::format("expected room for {} bytes on every rank", total),
                  fmt::format("got {} on this rank", capacity));
    auto* at = static_cast<std::byte*>(all);
    for (const auto& part :
         workers.all_gather(std::span(static_cast<const std::byte*>(values), bytes)))
      at = std::ranges::copy(part, at).out;
  });
}

int lockstep_barrier(lockstep_session* session) {
  return guarded([&] {
    require(session != nullptr, "lockstep_barrier", "expected a session");
    session->session.workers().barrier();
  });
}

int lockstep_any(lockstep_session* session, int mine, int* result) {
  return guarded([&] {
    require(session != nullptr && result != nullptr, "lockstep_any",
            "expected a session and a pointer for the result");
    *result = session->session.workers().any(mine != 0) ? 1 : 0;
  });
}

lockstep_options lockstep_default_options(void) {
  const interop::DistributedOptions standard;
  return {sizeof(lockstep_options),
          0,
          standard.backward_passes_per_step,
          LOCKSTEP_FLOAT32,
          standard.bucket_bytes,
          standard.predivide_factor,
          standard.clip_norm,
          standard.skip_non_finite ? 1 : 0,
          standard.average_passes ? 0 : 1};
}

int lockstep_optimizer_create(lockstep_session* session, const lockstep_parameter* parameters,
                              size_t count, const lockstep_options* options,
                              int (*update)(void* state), void* state,
                              lockstep_optimizer** optimizer) {
  return guarded([&] {
    require(session != nullptr && optimizer != nullptr && (parameters != nullptr || count == 0),
            "lockstep_optimizer_create",
            "expected a session, parameters and a pointer for the optimizer");
    *optimizer = nullptr;
    *optimizer = new lockstep_optimizer(
        session->session, Callback({parameters, count}, update, state),
        to_options(known_options(options, lockstep_default_options(), kCreate)));
  });
}

void lockstep_optimizer_free(lockstep_optimizer* optimizer) { delete optimizer; }

int lockstep_broadcast_parameters(lockstep_optimizer* optimizer, int root) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_broadcast_parameters", "expected an optimizer");
    require_root(root, optimizer->distributed.reducer().workers(), "lockstep_broadcast_parameters");
    optimizer->distributed.broadcast_parameters(root);
  });
}

int lockstep_broadcast_optimizer_state(lockstep_optimizer* optimizer,
                                       const lockstep_parameter* state, size_t count, int root) {
  constexpr const char* kBroadcast = "lockstep_broadcast_optimizer_state";
  return guarded([&] {
    require(optimizer != nullptr && (state != nullptr || count == 0), kBroadcast,
            "expected an optimizer and its state");
    require_root(root, optimizer->distributed.reducer().workers(), kBroadcast);
    optimizer->inner.keep_state({state, count}, kBroadcast);
    optimizer->distributed.broadcast_optimizer_state(root);
  });
}

int lockstep_begin_backward(lockstep_optimizer* optimizer, double samples) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_begin_backward", "expected an optimizer");
    optimizer->distributed.begin_backward(samples);
  });
}

int lockstep_gradient_ready(lockstep_optimizer* optimizer, size_t parameter) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_gradient_ready", "expected an optimizer");
    optimizer->distributed.gradient_ready(parameter);
  });
}

int lockstep_backward_done(lockstep_optimizer* optimizer, double samples) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_backward_done", "expected an optimizer");
    optimizer->distributed.backward_done(samples);
  });
}

int lockstep_synchronize(lockstep_optimizer* optimizer) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_synchronize", "expected an optimizer");
    optimizer->distributed.synchronize();
  });
}

int lockstep_step(lockstep_optimizer* optimizer, int* updated) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_step", "expected an optimizer");
    const bool done = optimizer->distributed.step();
    if (updated != nullptr) *updated = done ? 1 : 0;
  });
}

int lockstep_flush(lockstep_optimizer* optimizer, int* updated) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_flush", "expected an optimizer");
    const bool done = optimizer->distributed.flush();
    if (updated != nullptr) *updated = done ? 1 : 0;
  });
}

int lockstep_discard(lockstep_optimizer* optimizer) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_discard", "expected an optimizer");
    optimizer->distributed.discard();
  });
}

int lockstep_join(lockstep_optimizer* optimizer, int* steps) {
  return guarded([&] {
    require(optimizer != nullptr, "lockstep_join", "expected an optimizer");
    const int made = optimizer->distributed.join();
    if (steps != nullptr) *steps = made;
  });
}

double lockstep_gradient_norm(const lockstep_optimizer* optimizer) {
  return optimizer == nullptr ? 0 : optimizer->distributed.gradient_norm();
}

int lockstep_has_gradient(const lockstep_optimizer* optimizer, size_t parameter) {
  return optimizer != nullptr && parameter < optimizer->inner.parameters().size() &&
                 optimizer->distributed.has_gradient(parameter)
             ? 1
             : 0;
}
