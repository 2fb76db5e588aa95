// Wraps a LibTorch module so that backward() averages gradients over all ranks.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/serialize/archive.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "lockstep/interop/torch/module_buffers.h"
#include "lockstep/interop/torch/parameter_gradients.h"
#include "lockstep/job/workers.h"

namespace lockstep::inline v0::torch {

/// Options of DistributedDataParallel, the same on all ranks.
struct DataParallelOptions {
  /// Buckets, compression, groups, predivide factor, clipping. Leave backward_passes_per_step and
  /// average_passes at their defaults: use no_sync() for accumulation.
  interop::ReducerOptions gradients = {};
  BufferSync buffers = BufferSync::broadcast;  ///< how buffers are synchronized at the end of each
                                               ///< reduced backward pass
  /// The dimension of the first tensor argument of forward() that counts samples; nullopt: equal
  /// weights of ranks.
  std::optional<std::int64_t> batch_dimension = 0;
};

/// The part of DistributedDataParallel that does not depend on the type of the module.
class ModuleExchange {
 public:
  /// `workers` must outlive this object. Collective.
  ModuleExchange(job::Workers& workers, ::torch::nn::Module& module,
                 const DataParallelOptions& options);

  /// `batch`: the first tensor argument of forward(); null if there is none.
  void forward_begins(const at::Tensor* batch);
  /// Sets whether the next backward passes reduce gradients, or only accumulate them.
  void set_synchronizing(bool on) { synchronizing_ = on; }
  /// Whether the next backward passes reduce gradients.
  bool is_synchronizing() const { return synchronizing_; }
  ParameterGradients& gradients() { return gradients_; }  ///< the gradients and their reduction

 private:
  PassPlan plan_pass();
  void pass_ended();

  std::optional<std::int64_t> batch_dimension_;
  bool synchronizing_ = true;
  std::optional<double> samples_;  // samples of the last forward pass, until its backward pass
  double samples_of_step_ = 0;
  ParameterGradients gradients_;
  ModuleBuffers buffers_;
};

/// During its lifetime, calls of backward() accumulate gradients without reduction. The first call
/// afterwards reduces the sum.
class [[nodiscard]] NoSync {
 public:
  /// Turns reduction off until the destructor.
  explicit NoSync(ModuleExchange& exchange)
      : exchange_(exchange), before_(exchange.is_synchronizing()) {
    exchange_.set_synchronizing(false);
  }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync() { exchange_.set_synchronizing(before_); }

 private:
  ModuleExchange& exchange_;
  bool before_;
};

/// Wraps a module, like the PyTorch class of this name, within lockstep::run():
///
///     lockstep::torch::DistributedDataParallel net(session, Net());
///     ::torch::optim::SGD optimizer(net->parameters(), 0.1);
///     for (auto& batch : *loader) {
///       optimizer.zero_grad();
///       loss_of(net(batch.data), batch.target).backward();  // averages gradients over all ranks
///       optimizer.step();
///     }
///
/// The constructor copies the parameters and buffers of rank 0 to all ranks. Gradients are averaged
/// over all samples of all ranks: the weight of a rank is the size of its batch, as forward()
/// receives it, and the loss is a mean over the batch. So N ranks train like one process with the
/// same global batch, up to float rounding, also with a smaller last batch. Passes under no_sync()
/// are summed, as in autograd: k passes give k times the average over their samples. Parameters
/// without a gradient on a rank count as zero there; no option is needed.
///
/// All ranks run the same number of backward passes, each after a forward pass through this object:
/// net(x) or net.forward(x), not net->forward(x), which bypasses it. After several forward passes
/// the last one sets the number of samples, so add up their losses and call backward() once. A
/// backward pass without a forward pass, such as the second one over a retained graph, throws Error
/// (input) on all ranks.
///
/// Call net->to(...) and requires_grad_() before wrapping the module. Otherwise the next forward
/// pass throws Error (input) on all ranks. It also throws after a backward pass that ended with an
/// exception: some of its gradients are already being reduced, so the job cannot continue.
template <typename Module>
class DistributedDataParallel {
 public:
  /// Collective. `session` must outlive this object. Throws, on all ranks, Error (input) for
  /// invalid options or parameters, and Error (communication) with the name of the first parameter
  /// that differs between ranks.
  DistributedDataParallel(job::Session& session, std::shared_ptr<Module> module,
                          const DataParallelOptions& options = {})
      : DistributedDataParallel(session.workers(), std::move(module), options) {}
  /// As above, for a holder that TORCH_MODULE declared.
  DistributedDataParallel(job::Session& session, const ::torch::nn::ModuleHolder<Module>& module,
                          const DataParallelOptions& options = {})
      : DistributedDataParallel(session.workers(), module.ptr(), options) {}
  /// As above, with the caller's own Workers.
  DistributedDataParallel(job::Workers& workers, std::shared_ptr<Module> module,
                          const DataParallelOptions& options = {})
      : module_(std::move(module)), exchange_(workers, *module_, options) {}
  /// As above, for a holder that TORCH_MODULE declared.
  DistributedDataParallel(job::Workers& workers, const ::torch::nn::ModuleHolder<Module>& module,
                          const DataParallelOptions& options = {})
      : DistributedDataParallel(workers, module.ptr(), options) {}

  /// Calls the module's forward() with this rank's samples.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    exchange_.forward_begins(first_tensor(arguments...));
    return module_->forward(std::forward<Arguments>(arguments)...);
  }
  /// Same as forward().
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  /// The wrapped module.
  Module* operator->() const { return module_.get(); }
  Module& operator*() const { return *module_; }                     ///< the wrapped module
  const std::shared_ptr<Module>& module() const { return module_; }  ///< the wrapped module, shared

  /// For gradient accumulation: { auto passes = net.no_sync(); … backward(); … } and one backward()
  /// after it.
  NoSync no_sync() { return NoSync(exchange_); }

  /// The reducer, with its buckets and statistics of the last step.
  interop::GradientReducer& reducer() { return exchange_.gradients().reducer(); }

 private:
  static const at::Tensor* first_tensor() { return nullptr; }
  template <typename First, typename... Others>
  static const at::Tensor* first_tensor(const First& first, const Others&... others) {
    if constexpr (std::is_base_of_v<at::Tensor, First>)
      return &first;
    else
      return first_tensor(others...);
  }

  std::shared_ptr<Module> module_;
  ModuleExchange exchange_;
};

template <typename Owner, typename Module>
DistributedDataParallel(Owner&, std::shared_ptr<Module>, const DataParallelOptions& = {})
    -> DistributedDataParallel<Module>;
template <typename Owner, typename Holder>
DistributedDataParallel(Owner&, Holder, const DataParallelOptions& = {})
    -> DistributedDataParallel<typename Holder::ContainedType>;

/// For torch::save: the file contains the module, in the same format as without this class.
template <typename Module>
::torch::serialize::OutputArchive& operator<<(::torch::serialize::OutputArchive& archive,
                                              const DistributedDataParallel<Module>& net) {
  net->save(archive);
  return archive;
}
/// For torch::load: reads a file of this class or of the module.
template <typename Module>
::torch::serialize::InputArchive& operator>>(::torch::serialize::InputArchive& archive,
                                             DistributedDataParallel<Module>& net) {
  net->load(archive);
  return archive;
}

}  // namespace lockstep::inline v0::torch
