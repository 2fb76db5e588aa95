#include <Eigen/Core>
#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <unsupported/Eigen/SpecialFunctions>

#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/cpu/relu.h"
#include "lockstep/model/layers/elementwise/elementwise.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/random/random.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// Computes in float32 blocks, also for 16-bit elements: see float_rows.h.
template <typename T>
T* elements(const TensorView& view) {
  return static_cast<T*>(view.data());
}

template <typename T>
auto array(const TensorView& view) {
  using Values = Eigen::Array<T, Eigen::Dynamic, 1>;
  return Eigen::Map<Values>(elements<T>(view), static_cast<Eigen::Index>(view.size()));
}

class ReluOperation final : public Operation {
 public:
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = true, .in_place = true};
  }
  void forward(const Operands& t, const PassContext& /*pass*/) override {
    relu(t.inputs[0], t.output);
  }
  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (!t.input_gradients[0].empty())
      relu_gradient(t.output, t.output_gradient, t.input_gradients[0]);
  }
};

// A register as a value, for functions of arrays.
using Values = Eigen::Array<float, kLanes, 1>;

// to = function(from...), arrays of `count` elements that `to` may alias, by a function of Values.
// The last elements are padded with zeros to a register.
template <typename Function, typename... From>
void map_values(Function function, std::int64_t count, float* to, const From*... from) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Values results = function(Values(Eigen::Map<const Values>(from + i))...);
    store_lanes(load_lanes(results.data()), to + i);
  }
  if (i == count) return;
  const auto last = [&](const float* elements) {
    Values result = Values::Zero();
    std::copy(elements + i, elements + count, result.data());
    return result;
  };
  const Values results = function(last(from)...);
  std::copy_n(results.data(), count - i, to + i);
}

// map_values() for elements of type T, in blocks.
template <typename T, typename Function, typename... From>
void map_blocks(const Function& function, std::int64_t size, T* to, const From*... from) {
  for_blocks(size, [&](std::int64_t first, std::int64_t count) {
    FloatBlock buffers[sizeof...(From)];
    FloatBlock* unused = buffers;
    if constexpr (std::is_same_v<T, float>) {
      map_values(function, count, to + first, (from + first)...);
    } else {
      const auto wide = [&](const T* elements) {
        float* const copy = (unused++)->data();
        widen(elements + first, count, copy);
        return copy;
      };
      [&](const auto*... copies) {
        map_values(function, count, buffers[0].data(), copies...);
      }(wide(from)...);
      narrow(buffers[0].data(), count, to + first);
    }
  });
}

// The operation of the function F; make_typed() selects the element type.
template <typename F>
struct PointwiseOf {
  template <typename T>
  class Operation final : public model::Operation {
   public:
    Operation(const F& function, const Needs& needs) : function_(function), needs_(needs) {}
    Needs needs() const override { return needs_; }
    void forward(const Operands& t, const PassContext& /*pass*/) override {
      const T* const input = elements<T>(t.inputs[0]);
      T* const output = elements<T>(t.output);
      const auto value = [f = function_](float x) { return f.forward(x); };
      if constexpr (kAcceptsValues) {
        map_blocks([f = function_](const Values& x) { return f.forward(x); }, std::ssize(t.output),
                   output, input);
        return;
      }
      for_blocks(std::ssize(t.output), [&](std::int64_t first, std::int64_t count) {
        FloatBlock scratch;
        const auto x = widened(input + first, count, scratch.data());
        assign(x.unaryExpr(value), output + first, count, scratch.data());
      });
    }
    void backward(const Operands& t, const PassContext& /*pass*/) override {
      if (t.input_gradients[0].empty()) return;
      const T* const read = elements<T>(needs_.inputs_in_backward ? t.inputs[0] : t.output);
      const T* const output_gradient = elements<T>(t.output_gradient);
      T* const gradients = elements<T>(t.input_gradients[0]);
      const auto gradient = [f = function_](float value, float dy) {
        return f.gradient(value, dy);
      };
      if constexpr (kAcceptsValues) {
        map_blocks([f = function_](const Values& x, const Values& dy) { return f.gradient(x, dy); },
                   std::ssize(t.output_gradient), gradients, read, output_gradient);
        return;
      }
      for_blocks(std::ssize(t.output_gradient), [&](std::int64_t first, std::int64_t count) {
        FloatBlock scratch[2];
        const auto values = widened(read + first, count, scratch[0].data());
        const auto dy = widened(output_gradient + first, count, scratch[1].data());
        assign(values.binaryExpr(dy, gradient), gradients + first, count, scratch[0].data());
      });
    }

   private:
    static constexpr bool kAcceptsValues = requires(const F& f, const Values& x) { f.forward(x); };
    F function_;
    Needs needs_;
  };
};

template <typename T>
class AddOperation final : public Operation {
 public:
  explicit AddOperation(bool relu) : relu_(relu) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = relu_, .in_place = true};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    T* const output = elements<T>(t.output);
    const auto size = std::ssize(t.output);
    const std::size_t last = t.inputs.size() - 1;
    const T* sum = elements<T>(t.inputs[0]);  // may be the output's memory
    for (std::size_t k = 1; k < last; ++k, sum = output)
      add(sum, elements<T>(t.inputs[k]), size, output);
    const T* const addend = elements<T>(t.inputs[last]);
    if (!relu_) return add(sum, addend, size, output);
    for_blocks(size, [&](std::int64_t first, std::int64_t count) {
      FloatBlock scratch[2];
      const auto left = widened(sum + first, count, scratch[0].data());
      const auto right = widened(addend + first, count, scratch[1].data());
      assign((left + right).max(0.0f), output + first, count, scratch[0].data());
    });
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    auto gradient = array<T>(t.output_gradient);
    if (relu_)
      for_blocks(gradient.size(), [&](std::int64_t first, std::int64_t count) {
        FloatBlock scratch;
        auto part = gradient.segment(first, count);
        const auto y = widened(elements<T>(t.output) + first, count, scratch.data());
        part = (y > 0.0f).select(part, T(0));
      });
    for (const TensorView& input_gradient : t.input_gradients)
      if (!input_gradient.empty() && input_gradient.data() != t.output_gradient.data())
        array<T>(input_gradient) = gradient;
  }

 private:
  bool relu_;
};

template <typename T>
class MultiplyOperation final : public Operation {
 public:
  Needs needs() const override { return {.inputs_in_backward = true, .output_in_backward = false}; }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    multiply(t.inputs[0], t.inputs[1], t.output);
    for (std::size_t k = 2; k < t.inputs.size(); ++k) multiply(t.output, t.inputs[k], t.output);
  }

  // The gradient of an input is the output gradient times all other inputs.
  void backward(const Operands& t, const PassContext& /*pass*/) override {
    for (std::size_t k = 0; k < t.inputs.size(); ++k) {
      const TensorView& gradient = t.input_gradients[k];
      if (gradient.empty()) continue;
      const TensorView* product = &t.output_gradient;
      for (std::size_t other = 0; other < t.inputs.size(); ++other) {
        if (other == k) continue;
        multiply(*product, t.inputs[other], gradient);
        product = &gradient;
      }
    }
  }

 private:
  static void multiply(const TensorView& a, const TensorView& b, const TensorView& product) {
    for_blocks(std::ssize(product), [&](std::int64_t first, std::int64_t count) {
      FloatBlock scratch[2];
      const auto left = widened(elements<T>(a) + first, count, scratch[0].data());
      const auto right = widened(elements<T>(b) + first, count, scratch[1].data());
      assign(left * right, elements<T>(product) + first, count, scratch[0].data());
    });
  }
};

// A product of two arrays, one of which is repeated along some axes.
template <typename T>
class RepeatedProductOperation final : public Operation {
 public:
  explicit RepeatedProductOperation(const Broadcast& broadcast) : broadcast_(broadcast) {}
  Needs needs() const override { return {.inputs_in_backward = true, .output_in_backward = false}; }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    multiply(t.inputs[broadcast_.larger_input], t.inputs[1 - broadcast_.larger_input], t.output);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    const std::size_t larger = broadcast_.larger_input;
    const TensorView& gradient = t.input_gradients[larger];
    if (!gradient.empty()) multiply(t.output_gradient, t.inputs[1 - larger], gradient);
    const TensorView& sums = t.input_gradients[1 - larger];
    if (!sums.empty()) sum_products(t.output_gradient, t.inputs[larger], sums);
  }

 private:
  // product = larger * smaller.
  void multiply(const TensorView& larger, const TensorView& smaller, const TensorView& product) {
    const auto [outer, repeats, inner, index] = broadcast_;
    for (std::int64_t o = 0; o < outer; ++o) {
      const T* const factors = elements<T>(smaller) + o * inner;
      const std::int64_t begin = o * repeats * inner;
      if (inner == 1) {
        const auto factor = static_cast<float>(*factors);
        for_blocks(repeats, [&](std::int64_t first, std::int64_t count) {
          FloatBlock scratch;
          const auto x = widened(elements<T>(larger) + begin + first, count, scratch.data());
          assign(x * factor, elements<T>(product) + begin + first, count, scratch.data());
        });
        continue;
      }
      for (std::int64_t r = 0; r < repeats; ++r)
        for_blocks(inner, [&](std::int64_t first, std::int64_t count) {
          FloatBlock scratch[2];
          const std::int64_t at = begin + r * inner + first;
          const auto x = widened(elements<T>(larger) + at, count, scratch[0].data());
          const auto y = widened(factors + first, count, scratch[1].data());
          assign(x * y, elements<T>(product) + at, count, scratch[0].data());
        });
    }
  }

  // sums[outer, inner] = the sums over the repetitions of a * b.
  void sum_products(const TensorView& a, const TensorView& b, const TensorView& sums) {
    const auto [outer, repeats, inner, index] = broadcast_;
    for (std::int64_t o = 0; o < outer; ++o) {
      const std::int64_t begin = o * repeats * inner;
      if (inner == 1) {
        double sum = 0;
        for_blocks(repeats, [&](std::int64_t first, std::int64_t count) {
          FloatBlock scratch[2];
          const auto x = widened(elements<T>(a) + begin + first, count, scratch[0].data());
          const auto y = widened(elements<T>(b) + begin + first, count, scratch[1].data());
          sum += static_cast<double>((x * y).sum());
        });
        elements<T>(sums)[o] = static_cast<T>(static_cast<float>(sum));
        continue;
      }
      for_blocks(inner, [&](std::int64_t first, std::int64_t count) {
        FloatBlock scratch[2];
        FloatBlock total;
        FloatArray(total.data(), count).setZero();
        for (std::int64_t r = 0; r < repeats; ++r) {
          const std::int64_t at = begin + r * inner + first;
          FloatArray(total.data(), count) +=
              widened(elements<T>(a) + at, count, scratch[0].data()) *
              widened(elements<T>(b) + at, count, scratch[1].data());
        }
        narrow(total.data(), count, elements<T>(sums) + o * inner + first);
      });
    }
  }

  Broadcast broadcast_;
};

// The mask is stored as one byte per element. Each sample's random numbers depend on its index in
// the global batch, with four elements per block.
template <typename T>
class DropoutOperation final : public Operation {
 public:
  DropoutOperation(const CompileContext& context, float rate)
      : layer_(context.name),
        batch_(context.batch),
        features_(element_count(context.output)),
        rate_(rate) {}

  Needs needs() const override {
    return {.inputs_in_backward = false,
            .output_in_backward = false,
            .in_place = true,
            .saved_bytes = static_cast<std::size_t>(batch_ * features_)};
  }

  void forward(const Operands& t, const PassContext& pass) override {
    const Philox random(random_key(pass.seed, layer_, static_cast<std::uint64_t>(pass.step)));
    auto* mask = reinterpret_cast<std::uint8_t*>(t.saved.data());
    for (std::int64_t sample = 0; sample < batch_; ++sample) {
      const auto index = static_cast<std::uint64_t>(pass.first_sample + sample);
      for (std::int64_t f = 0; f < features_; f += 4) {
        const auto words = random.block(index, static_cast<std::uint64_t>(f / 4));
        const std::int64_t count = std::min<std::int64_t>(4, features_ - f);
        for (std::int64_t k = 0; k < count; ++k)
          mask[sample * features_ + f + k] = to_unit_float(words[k]) >= rate_;
      }
    }
    apply(t.inputs[0], t.output, mask);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (!t.input_gradients[0].empty())
      apply(t.output_gradient, t.input_gradients[0],
            reinterpret_cast<const std::uint8_t*>(t.saved.data()));
  }

 private:
  void apply(const TensorView& from, const TensorView& to, const std::uint8_t* mask) const {
    const float scale = 1 / (1 - rate_);
    for_blocks(std::ssize(from), [&](std::int64_t first, std::int64_t count) {
      FloatBlock scratch;
      const auto x = widened(elements<T>(from) + first, count, scratch.data());
      const Eigen::Map<const Eigen::Array<std::uint8_t, Eigen::Dynamic, 1>> mask_block(mask + first,
                                                                                       count);
      assign((mask_block != 0).select(x * scale, 0.0f), elements<T>(to) + first, count,
             scratch.data());
    });
  }

  std::string layer_;
  std::int64_t batch_;
  std::int64_t features_;
  float rate_;
};

class SoftmaxOperation final : public Operation {
 public:
  SoftmaxOperation(Context& context, std::int64_t rows, std::int64_t width, bool training) {
    const memory::desc array = matrix(context.type, rows, width);
    const auto kind =
        training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const auto forward = describe_softmax(context.engine, kind, array, user_scratchpad());
    forward_ = Primitive(context, dnnl::softmax_forward(forward),
                         {{DNNL_ARG_SRC, array}, {DNNL_ARG_DST, array}}, forward.scratchpad_desc());
    if (!training) return;
    const auto backward =
        describe_softmax_backward(context.engine, array, user_scratchpad(), forward);
    backward_ =
        Primitive(context, dnnl::softmax_backward(backward),
                  {{DNNL_ARG_DST, array}, {DNNL_ARG_DIFF_DST, array}, {DNNL_ARG_DIFF_SRC, array}},
                  backward.scratchpad_desc());
  }

  Needs needs() const override {
    return {.inputs_in_backward = false,
            .output_in_backward = true,
            .scratch_bytes = std::max(forward_.scratch_bytes(), backward_.scratch_bytes())};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    forward_.place(DNNL_ARG_SRC, t.inputs[0]);
    forward_.place(DNNL_ARG_DST, t.output);
    forward_.run(t.scratch);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (t.input_gradients[0].empty()) return;
    backward_.place(DNNL_ARG_DST, t.output);
    backward_.place(DNNL_ARG_DIFF_DST, t.output_gradient);
    backward_.place(DNNL_ARG_DIFF_SRC, t.input_gradients[0]);
    backward_.run(t.scratch);
  }

 private:
  Primitive forward_;
  Primitive backward_;
};

// The operation for the element type of the replica.
template <template <typename> typename Op, typename... Arguments>
std::unique_ptr<Operation> make_typed(const Context& context, const Arguments&... arguments) {
  if (context.type == memory::data_type::bf16)
    return std::make_unique<Op<Eigen::bfloat16>>(arguments...);
  return std::make_unique<Op<float>>(arguments...);
}

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> ReLU::compile_cpu(const CompileContext& /*context*/,
                                             cpu::Context& /*cpu*/) const {
  return std::make_unique<cpu::ReluOperation>();
}

std::unique_ptr<Operation> PointwiseLayer::compile_cpu(const CompileContext& /*context*/,
                                                       cpu::Context& cpu) const {
  std::unique_ptr<Operation> operation;
  visit_function(*this, [&]<typename F>(const F& function) {
    operation = cpu::make_typed<cpu::PointwiseOf<F>::template Operation>(cpu, function, needs());
  });
  return operation;
}

std::unique_ptr<Operation> Dropout::compile_cpu(const CompileContext& context,
                                                cpu::Context& cpu) const {
  if (is_identity(context)) return nullptr;
  return cpu::make_typed<cpu::DropoutOperation>(cpu, context, options_.rate);
}

std::unique_ptr<Operation> Add::compile_cpu(const CompileContext& context,
                                            cpu::Context& cpu) const {
  return cpu::make_typed<cpu::AddOperation>(cpu, context.fused_relu);
}

std::unique_ptr<Operation> Multiply::compile_cpu(const CompileContext& context,
                                                 cpu::Context& cpu) const {
  if (const auto broadcast = broadcast_of(context.inputs[0], context.inputs[1], context.batch);
      broadcast->repeats > 1)
    return cpu::make_typed<cpu::RepeatedProductOperation>(cpu, *broadcast);
  return cpu::make_typed<cpu::MultiplyOperation>(cpu);
}

std::unique_ptr<Operation> Softmax::compile_cpu(const CompileContext& context,
                                                cpu::Context& cpu) const {
  const std::int64_t width = context.output.back();
  const std::int64_t rows = context.batch * element_count(context.output) / width;
  return std::make_unique<cpu::SoftmaxOperation>(cpu, rows, width, context.training);
}

}  // namespace lockstep::inline v0::model
