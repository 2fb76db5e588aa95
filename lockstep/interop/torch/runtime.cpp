#include "lockstep/interop/torch/runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>
#include <c10/util/Exception.h>

#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::torch {
namespace {

std::mutex& generator_mutex() {
  static std::mutex the_mutex;
  return the_mutex;
}

}  // namespace

SeededGenerator::SeededGenerator(std::uint64_t seed)
    : lock_(generator_mutex()),
      generator_(at::detail::getDefaultCPUGenerator()),
      before_(generator_.get_state()) {
  this->seed(seed);
}

SeededGenerator::~SeededGenerator() { generator_.set_state(before_); }

void SeededGenerator::seed(std::uint64_t seed) {
  generator_.set_current_seed(seed);
  seeded_ = generator_.get_state();
}

bool SeededGenerator::was_used() const { return !seeded_.equal(generator_.get_state()); }

void share_thread_budget() {
  static std::mutex mutex;
  const int budget = thread_budget();
  const std::scoped_lock lock(mutex);
  if (at::get_num_threads() != budget) at::set_num_threads(budget);
}

std::string reason(const std::exception& error) {
  const auto* const theirs = dynamic_cast<const c10::Error*>(&error);
  std::string text = theirs != nullptr ? theirs->what_without_backtrace() : error.what();
  text.erase(text.find_last_not_of('\n') + 1);
  const bool is_script = text.starts_with("The following operation failed");
  return "LibTorch: " +
         (is_script ? text.substr(text.rfind('\n') + 1) : text.substr(0, text.find('\n')));
}

}  // namespace lockstep::inline v0::torch
