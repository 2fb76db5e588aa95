#include "lockstep/interop/torch/module_layer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "lockstep/base/random.h"
#include "lockstep/base/system/host.h"
#include "lockstep/model/backend.h"

namespace lockstep::torch {
namespace {

using Flat = std::vector<std::span<float>>;

/// LibTorch's generator of the CPU with a seed, for the threads of this process one after another.
class SeededGenerator {
 public:
  explicit SeededGenerator(std::uint64_t seed)
      : lock_(mutex()),
        generator_(at::detail::getDefaultCPUGenerator()),
        before_(generator_.get_state()) {
    this->seed(seed);
  }
  ~SeededGenerator() { generator_.set_state(before_); }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

  void seed(std::uint64_t seed) {
    generator_.set_current_seed(seed);
    seeded_ = generator_.get_state();
  }
  /// Whether numbers have been drawn since.
  bool was_used() const { return !seeded_.equal(generator_.get_state()); }

 private:
  static std::mutex& mutex() {
    static std::mutex the_mutex;
    return the_mutex;
  }

  std::scoped_lock<std::mutex> lock_;
  at::Generator generator_;
  at::Tensor before_;
  at::Tensor seeded_;
};

/// The line of `error` that says what is wrong: the first, or the last if the interpreter of
/// TorchScript tells where it was.
std::string reason(const std::exception& error) {
  const auto* const theirs = dynamic_cast<const c10::Error*>(&error);
  std::string text = theirs != nullptr ? theirs->what_without_backtrace() : error.what();
  text.erase(text.find_last_not_of('\n') + 1);
  const bool is_script = text.starts_with("The following operation failed");
  return "LibTorch: " +
         (is_script ? text.substr(text.rfind('\n') + 1) : text.substr(0, text.find('\n')));
}

/// Calls `function`; what LibTorch throws becomes an Error of `where`.
template <typename Function>
auto told(const std::string& where, const char* expected, ErrorCategory category,
          const Function& function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(category, where, expected, reason(error));
  }
}

at::Tensor view_of(std::span<float> values, at::IntArrayRef sizes) {
  return at::from_blob(values.data(), sizes, at::TensorOptions().dtype(at::kFloat));
}

/// The values of an array of the same number of elements; zeros if there is none.
void write(const at::Tensor& from, std::span<float> to) {
  if (!from.defined())
    std::ranges::fill(to, 0.0F);
  else
    view_of(to, from.sizes()).copy_(from.is_sparse() ? from.to_dense() : from);
}

/// Whether its values are the same after they were stored: whole numbers up to 2^24, for example.
bool is_exact_as_float(const at::Tensor& tensor) {
  return tensor.to(at::kFloat).to(tensor.scalar_type()).equal(tensor);
}

model::Shape shape_of(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? model::Shape{1} : tensor.sizes().vec();
}

AnyModule load_script(const std::filesystem::path& script) {
  const auto module = std::make_shared<::torch::jit::Module>(
      told(script.string(), "expected a TorchScript file", ErrorCategory::data,
           [&] { return ::torch::jit::load(script.string()); }));
  const auto pairs = [](const auto& list) {
    NamedTensors::Pairs named;
    for (const auto& item : list) named.emplace_back(item.name, item.value);
    return named;
  };
  return {.parameters = pairs(module->named_parameters()),
          .buffers = pairs(module->named_buffers()),
          .forward =
              [module](const std::vector<at::Tensor>& inputs) {
                // The first passes of an optimized graph compute in another order than later ones.
                const ::torch::jit::GraphOptimizerEnabledGuard as_written(false);
                return module->forward(std::vector<c10::IValue>(inputs.begin(), inputs.end()))
                    .toTensor();
              },
          .train = [module](bool training) { module->train(training); }};
}

/// The module's tensors, each once, as the layer stores them.
struct Tensors {
  explicit Tensors(const AnyModule& module) {
    std::vector<at::Tensor> seen;
    const auto add = [&](const auto& pairs, bool are_parameters) {
      for (const auto& pair : pairs) {
        if (std::ranges::any_of(seen, [&](const auto& it) { return it.is_same(pair.second); }))
          continue;
        seen.push_back(pair.second);
        (are_parameters && pair.second.requires_grad() ? parameters : buffers).push_back(pair);
      }
    };
    add(module.parameters, true);
    add(module.buffers, false);
  }

  NamedTensors::Pairs parameters;  // trained, unless the network freezes them
  NamedTensors::Pairs buffers;
};

/// The module of one replica, with the replica's arrays.
class Replicated {
 public:
  Replicated(AnyModule module, const ModuleOptions& options)
      : module_(std::move(module)), tensors_(module_), options_(options) {}

  const NamedTensors::Pairs& parameters() const { return tensors_.parameters; }

  /// Makes its tensors views of these arrays; copies those of other types.
  void bind(const Flat& parameters, const Flat& buffers) {
    if (!is_bound_) {
      for (std::size_t i = 0; i < parameters.size(); ++i)
        view_at(tensors_.parameters[i].second, parameters[i]);
      for (std::size_t i = 0; i < buffers.size(); ++i)
        if (tensors_.buffers[i].second.scalar_type() == at::kFloat)
          view_at(tensors_.buffers[i].second, buffers[i]);
    }
    is_bound_ = true;
    each_copied(buffers, [](at::Tensor& mine, const at::Tensor& stored) {
      mine.copy_(mine.is_floating_point() ? stored : stored.round());
    });
  }

  /// Stores the buffers that are copies.
  void store(const Flat& buffers) {
    each_copied(buffers, [](const at::Tensor& mine, at::Tensor stored) { stored.copy_(mine); });
  }

  /// The output for `inputs`, whose first dimension is the sample, in the layout of the network.
  at::Tensor forward(std::vector<at::Tensor> inputs, bool training) {
    if (std::exchange(trains_, training) != training) module_.train(training);
    for (at::Tensor& input : inputs)
      if (options_.channels_first && input.dim() == 4)
        input = input.permute({0, 3, 1, 2}).contiguous();
    at::Tensor output = module_.forward(inputs);
    if (output.dim() == 1) output = output.unsqueeze(1);
    if (options_.channels_first && output.dim() == 4) output = output.permute({0, 2, 3, 1});
    return output;
  }

 private:
  static void view_at(at::Tensor& tensor, std::span<float> values) {
    tensor.set_data(view_of(values, tensor.sizes()));
  }

  template <typename Copy>
  void each_copied(const Flat& buffers, const Copy& copy) {
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (at::Tensor& mine = tensors_.buffers[i].second; mine.scalar_type() != at::kFloat)
        copy(mine, view_of(buffers[i], mine.sizes()));
  }

  AnyModule module_;
  Tensors tensors_;
  ModuleOptions options_;
  bool is_bound_ = false;
  std::optional<bool> trains_;
};

class ModuleOperation final : public model::Operation {
 public:
  ModuleOperation(std::shared_ptr<Replicated> module, const model::CompileContext& context,
                  bool draws, bool reads_indices)
      : module_(std::move(module)),
        where_(fmt::format("layer {} (torch)", context.name)),
        context_(context),
        draws_(draws),
        reads_indices_(reads_indices) {}

  // Layers after this one may reuse the output's memory: LibTorch keeps what it needs.
  model::Needs needs() const override {
    return {.output_in_backward = false, .skips_frozen = true};
  }

  void forward(const model::Operands& o, const model::PassContext& pass) override {
    told(where_, "expected a module that computes this batch", ErrorCategory::input, [&] {
      const bool training = pass.training && !context_.frozen;
      const c10::AutoGradMode keeps_graph(context_.has_backward());
      {
        const c10::NoGradGuard no_graph;
        module_->bind(o.parameters, o.buffers);
      }
      make_inputs(o);
      std::optional<SeededGenerator> generator;
      if (training && draws_)
        generator.emplace(
            random_key(random_key(pass.seed, context_.name, static_cast<std::uint64_t>(pass.step)),
                       "part", static_cast<std::uint64_t>(pass.first_sample)));
      output_ = module_->forward(inputs_, training);
      // They are views of memory that others read, too.
      if (std::ranges::any_of(inputs_,
                              [](const at::Tensor& input) { return input._version() > 0; }))
        throw Error(ErrorCategory::input, where_,
                    "expected a module that leaves its inputs as they are",
                    "it changed one in place, as ReLU(inplace=True) does: begin with a clone");
      const c10::NoGradGuard no_graph;
      if (output_.numel() != static_cast<std::int64_t>(o.output.size()))
        throw Error(ErrorCategory::input, where_,
                    fmt::format("expected an output of {} values", o.output.size()),
                    fmt::format("got {}", output_.numel()));
      write(output_, o.output.as<float>());
      if (training) module_->store(o.buffers);
      if (!context_.has_backward()) release();
    });
  }

  void backward(const model::Operands& o, const model::PassContext& /*pass*/) override {
    told(where_, "expected a module with a backward pass", ErrorCategory::input, [&] {
      std::vector<at::Tensor> leaves;
      std::vector<std::span<float>> gradients;
      for (std::size_t i = 0; i < o.parameter_gradients.size(); ++i)
        if (!o.parameter_gradients[i].empty()) {
          leaves.push_back(module_->parameters()[i].second);
          gradients.push_back(o.parameter_gradients[i]);
        }
      for (std::size_t k = 0; k < o.input_gradients.size(); ++k)
        if (!o.input_gradients[k].empty()) {
          leaves.push_back(inputs_[k]);
          gradients.push_back(o.input_gradients[k].as<float>());
        }
      ::torch::autograd::variable_list results(leaves.size());
      if (output_.requires_grad())
        results = ::torch::autograd::grad(
            {output_}, leaves, {view_of(o.output_gradient.as<float>(), output_.sizes())},
            /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
      const c10::NoGradGuard no_graph;
      for (std::size_t i = 0; i < results.size(); ++i) write(results[i], gradients[i]);
      release();
    });
  }

 private:
  void make_inputs(const model::Operands& o) {
    release();
    for (std::size_t k = 0; k < context_.inputs.size(); ++k) {
      std::vector<std::int64_t> sizes = {context_.batch};
      std::ranges::copy(context_.inputs[k], std::back_inserter(sizes));
      if (k == 0 && reads_indices_) {
        // LibTorch reads it only; from_blob takes no pointer to const.
        auto* const indices = const_cast<std::int32_t*>(o.indices.data());  // NOLINT
        inputs_.push_back(
            at::from_blob(indices, sizes, at::TensorOptions().dtype(at::kInt)).to(at::kLong));
        continue;
      }
      inputs_.push_back(view_of(o.inputs[k].as<float>(), sizes));
      if (context_.has_backward() && context_.input_gradients) inputs_.back().requires_grad_();
    }
  }

  void release() {
    inputs_.clear();
    output_ = at::Tensor();
  }

  std::shared_ptr<Replicated> module_;
  std::string where_;
  model::CompileContext context_;
  bool draws_;
  bool reads_indices_;
  std::vector<at::Tensor> inputs_;  // from forward to backward
  at::Tensor output_;               // the same
};

/// LibTorch's kernels take as many threads as ours in the calling thread, which is a replica's.
void share_thread_budget() {
  static std::mutex mutex;
  const int budget = thread_budget();
  const std::scoped_lock lock(mutex);
  if (at::get_num_threads() != budget) at::set_num_threads(budget);
}

}  // namespace

/// Shared by the copies of a layer, in all networks and replicas.
struct ModuleLayer::State {
  Factory make;
  ModuleOptions options;
  std::atomic<bool> draws = false;  // forward draws random numbers in training
  std::mutex mutex;
  std::optional<std::uint64_t> seed;  // of `initial`
  std::vector<at::Tensor> initial;    // values of parameters and of buffers
  // The module of each replica and node, as long as a plan has it.
  std::map<std::pair<const model::Backend*, std::string>, std::weak_ptr<Replicated>> replicated;

  /// Writes the initial values of tensor `index`: those of the module that is made after seeding.
  void draw(std::size_t index, std::uint64_t with_seed, std::span<float> values) {
    const std::scoped_lock lock(mutex);
    const c10::NoGradGuard no_graph;
    if (seed != with_seed) {
      const SeededGenerator generator(with_seed);
      const Tensors tensors(make());
      initial.clear();
      for (const auto& pairs : {tensors.parameters, tensors.buffers})
        for (const auto& [name, tensor] : pairs) initial.push_back(tensor.to(at::kFloat));
      seed = with_seed;
    }
    write(initial.at(index), values);
  }

  std::shared_ptr<Replicated> of_replica(const model::Backend& backend, const std::string& node) {
    const std::scoped_lock lock(mutex);
    std::weak_ptr<Replicated>& place = replicated[{&backend, node}];
    std::shared_ptr<Replicated> module = place.lock();
    if (!module) {
      const SeededGenerator generator(0);
      module = std::make_shared<Replicated>(make(), options);
      place = module;
    }
    return module;
  }
};

ModuleLayer::ModuleLayer(Factory make, const ModuleOptions& options)
    : state_(std::make_shared<State>()) {
  state_->make = std::move(make);
  state_->options = options;
}

ModuleLayer::ModuleLayer(const std::filesystem::path& script, const ModuleOptions& options)
    : ModuleLayer(Factory([script] { return load_script(script); }), options) {
  static_cast<void>(load_script(script));  // its errors are told here
}

model::Shape ModuleLayer::build(model::BuildContext& context) const {
  SeededGenerator generator(0);
  const AnyModule module = state_->make();
  const Tensors tensors(module);
  std::size_t index = 0;
  const auto initializer = [&] {
    return model::Initializer{
        .draw = [state = state_, mine = index++](std::uint64_t seed, std::span<float> values) {
          state->draw(mine, seed, values);
        }};
  };
  // Biases, and the scales of normalizations, do not decay.
  for (const auto& [name, tensor] : tensors.parameters) {
    if (tensor.scalar_type() != at::kFloat || !tensor.is_cpu())
      context.refuse("expected parameters of type float32 on the CPU",
                     fmt::format("got {}, {} on {}", name, c10::toString(tensor.scalar_type()),
                                 tensor.device().str()));
    context.parameter(name, shape_of(tensor), initializer(), tensor.dim() > 1);
  }
  for (const auto& [name, tensor] : tensors.buffers) {
    if (!is_exact_as_float(tensor))
      context.refuse("expected buffers whose values float32 has",
                     fmt::format("got {}, {}", name, c10::toString(tensor.scalar_type())));
    context.buffer(name, shape_of(tensor), initializer());
  }

  constexpr std::int64_t kSamples = 2;  // batch normalization in training takes no single one
  std::vector<at::Tensor> inputs;
  for (const model::Shape& shape : context.inputs()) {
    std::vector<std::int64_t> sizes = {kSamples};
    std::ranges::copy(shape, std::back_inserter(sizes));
    const bool are_indices = inputs.empty() && state_->options.index_count > 0;
    inputs.push_back(at::zeros(sizes, are_indices ? at::kLong : at::kFloat));
  }
  at::Tensor output;
  try {
    const c10::NoGradGuard no_graph;
    Replicated trial(module, state_->options);
    output = trial.forward(inputs, false);
    generator.seed(0);
    trial.forward(inputs, true);
    state_->draws = generator.was_used();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    context.refuse("expected a module that computes inputs of these shapes", reason(error));
  }
  if (output.dim() < 2 || output.size(0) != kSamples || output.scalar_type() != at::kFloat)
    context.refuse("expected an output [samples, values...] of type float32",
                   fmt::format("got {} of 2 samples, {}", model::to_string(output.sizes().vec()),
                               c10::toString(output.scalar_type())));
  return {output.sizes().begin() + 1, output.sizes().end()};
}

std::unique_ptr<model::Operation> ModuleLayer::compile(const model::CompileContext& context,
                                                       model::Backend& backend) const {
  const std::string where = fmt::format("layer {} (torch)", context.name);
  if (!backend.runs_on_host())
    throw Error(ErrorCategory::device, where, "expected a CPU replica for a LibTorch module",
                fmt::format("got {}", backend.name()));
  if (backend.precision() != model::Precision::float32)
    throw Error(ErrorCategory::input, where, "expected float32 for a LibTorch module",
                fmt::format("got {}", to_string(backend.precision())));
  share_thread_budget();
  return std::make_unique<ModuleOperation>(state_->of_replica(backend, context.name), context,
                                           state_->draws, state_->options.index_count > 0);
}

model::Traits ModuleLayer::traits() const {
  return {.keeps_buffers_if_frozen = true, .index_count = state_->options.index_count};
}

}  // namespace lockstep::torch
