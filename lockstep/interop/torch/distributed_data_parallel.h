// A module of LibTorch whose backward() averages gradients over all ranks.
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
#include "lockstep/job/session.h"

namespace lockstep::torch {

/// All ranks give the same.
struct DataParallelOptions {
  /// Buckets, compression, groups, predivide factor, clipping. Not for accumulation, which is no_sync()'s:
  /// backward_passes_per_step and average_passes stay as they are.
  interop::ReducerOptions gradients = {};
  BufferSync buffers = BufferSync::broadcast;  ///< of all ranks, made equal at the end of each reduced backward pass
  /// The dimension of the first tensor that forward() is given which counts samples; nothing: ranks weigh the same.
  std::optional<std::int64_t> batch_dimension = 0;
};

/// What DistributedDataParallel does that does not depend on the type of the module.
class ModuleExchange {
 public:
  /// Over `workers`, which outlive it. Collective.
  ModuleExchange(job::Workers& workers, ::torch::nn::Module& module, const DataParallelOptions& options);

  /// `batch`: the first tensor that forward() is given; null where there is none.
  void forward_begins(const at::Tensor* batch);
  /// Whether the next backward passes are only added up here.
  void set_synchronizing(bool on) { synchronizing_ = on; }
  /// Whether the next backward passes reduce what they give.
  bool is_synchronizing() const { return synchronizing_; }
  ParameterGradients& gradients() { return gradients_; }  ///< where gradients lie, and how they travel

 private:
  PassPlan plan_pass();
  void pass_ended();

  std::optional<std::int64_t> batch_dimension_;
  bool synchronizing_ = true;
  std::optional<double> samples_;  // of the last forward pass, until its backward pass
  double samples_of_step_ = 0;
  ParameterGradients gradients_;
  ModuleBuffers buffers_;
};

/// While it lives, backward passes add up gradients and reduce nothing; the first one after it reduces all of them.
/// What counts is when backward() runs.
class [[nodiscard]] NoSync {
 public:
  /// From here on backward passes of `exchange` only add up.
  explicit NoSync(ModuleExchange& exchange) : exchange_(exchange), before_(exchange.is_synchronizing()) {
    exchange_.set_synchronizing(false);
  }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  ~NoSync() { exchange_.set_synchronizing(before_); }

 private:
  ModuleExchange& exchange_;
  bool before_;
};

/// Around a module, as PyTorch's class of this name:
///
///     lockstep::Session session(argc, argv);
///     lockstep::torch::DistributedDataParallel net(session, Net());
///     ::torch::optim::SGD optimizer(net->parameters(), 0.1);
///     for (auto& batch : *loader) {
///       optimizer.zero_grad();
///       loss_of(net(batch.data), batch.target).backward();   // gradients are those of all ranks when it returns
///       optimizer.step();
///     }
///
/// Made, it gives all ranks the parameters and buffers of rank 0. Gradients are the average over all samples, whichever
/// rank they are on: a rank's weight is the size of its batch, as forward() sees it, and the loss is a mean over it. So
/// N ranks train as one process does at the same global batch, to float rounding, with a ragged last batch too. Passes
/// under no_sync() add up, as autograd's do: k passes give k times the average over their samples. Parameters that get
/// no gradient on a rank count as zero there, without a flag.
///
/// All ranks run the same number of backward passes, each after a forward pass of its own through this object: net(x)
/// or net.forward(x), not net->forward(x), which is the module's own. Of several forward passes before it the last one
/// says how many samples the backward pass is of; so losses of several are added up before one backward(). A backward
/// pass that was not preceded by one, such as the second over a retained graph, is an Error (input) on all ranks.
///
/// The module stays as it is wrapped: net->to(...), and parameters that are to require gradients, come before, else the
/// next forward pass is an Error (input) on all ranks. So it is where a backward pass ended with an exception, whose
/// gradients are on their way in part: the job cannot go on from there.
template <typename Module>
class DistributedDataParallel {
 public:
  /// Collective. `session` outlives this object. Throws Error (input) for options and parameters that cannot be, Error
  /// (communication) for ranks whose modules differ, naming the first parameter that does; all ranks throw.
  DistributedDataParallel(job::Session& session, std::shared_ptr<Module> module,
                          const DataParallelOptions& options = {})
      : DistributedDataParallel(session.workers(), std::move(module), options) {}
  /// The same for a module in the holder that TORCH_MODULE makes.
  DistributedDataParallel(job::Session& session, const ::torch::nn::ModuleHolder<Module>& module,
                          const DataParallelOptions& options = {})
      : DistributedDataParallel(session.workers(), module.ptr(), options) {}
  /// The same over a group of one's own making.
  DistributedDataParallel(job::Workers& workers, std::shared_ptr<Module> module,
                          const DataParallelOptions& options = {})
      : module_(std::move(module)), exchange_(workers, *module_, options) {}
  /// The same for a module in the holder that TORCH_MODULE makes.
  DistributedDataParallel(job::Workers& workers, const ::torch::nn::ModuleHolder<Module>& module,
                          const DataParallelOptions& options = {})
      : DistributedDataParallel(workers, module.ptr(), options) {}

  /// The module's forward(), of this rank's samples.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    exchange_.forward_begins(first_tensor(arguments...));
    return module_->forward(std::forward<Arguments>(arguments)...);
  }
  /// As forward().
  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  /// The module: its parameters, train(), eval(), to save it.
  Module* operator->() const { return module_.get(); }
  Module& operator*() const { return *module_; }                     ///< the module itself
  const std::shared_ptr<Module>& module() const { return module_; }  ///< the module, as it is owned

  /// For gradient accumulation: { auto passes = net.no_sync(); … backward(); … } and one more backward() outside.
  NoSync no_sync() { return NoSync(exchange_); }

  /// What its buckets did, and numbers of the last step.
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

/// For torch::save and torch::load: what is in the file is the module, as without this class.
template <typename Module>
::torch::serialize::OutputArchive& operator<<(::torch::serialize::OutputArchive& archive,
                                              const DistributedDataParallel<Module>& net) {
  net->save(archive);
  return archive;
}
/// Reads what operator<< wrote, and what torch::save wrote of the module.
template <typename Module>
::torch::serialize::InputArchive& operator>>(::torch::serialize::InputArchive& archive,
                                             DistributedDataParallel<Module>& net) {
  net->load(archive);
  return archive;
}

}  // namespace lockstep::torch
