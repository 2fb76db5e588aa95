// The functions of the C interface for optimizers.

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/interop/c_session.h"
#include "lockstep/interop/distributed_optimizer.h"
#include "lockstep/interop/equivalence.h"
#include "lockstep/interop/gradient_reducer.h"

namespace {

using lockstep::Error;
using lockstep::ErrorCategory;
namespace allreduce = lockstep::allreduce;
namespace interop = lockstep::interop;
namespace job = lockstep::job;
using interop::guarded;
using interop::known_options;
using interop::require;
using interop::require_root;

constexpr const char* kCreate = "lockstep_optimizer_create";

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

}  // namespace

struct lockstep_optimizer {
  Callback inner;
  interop::DistributedOptimizer<Callback> distributed;

  lockstep_optimizer(job::Workers& workers, Callback callback,
                     const interop::DistributedOptions& options)
      : inner(std::move(callback)), distributed(workers, inner, options) {
    distributed.reducer().keep_group_on_misuse();
  }
};

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
        session->workers(), Callback({parameters, count}, update, state),
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

int lockstep_verify_equivalence(lockstep_session* session,
                                int (*loop)(lockstep_session* session, void* state), void* state) {
  constexpr const char* kVerify = "lockstep_verify_equivalence";
  return guarded([&] {
    require(session != nullptr && loop != nullptr, kVerify, "expected a session and a loop");
    const interop::EquivalenceResult result = interop::verify_equivalence(
        session->workers(), [&](job::Workers& workers) -> interop::StepLosses {
          lockstep_session some(workers);
          const int status = loop(&some, state);
          if (status != 0)
            throw Error(ErrorCategory::input, kVerify, "expected the loop to return 0",
                        fmt::format("got {}", status));
          return {};
        });
    if (!result) throw Error(ErrorCategory::input, result.message);
  });
}
