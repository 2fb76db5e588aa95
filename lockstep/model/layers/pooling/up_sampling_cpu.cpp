#include <Eigen/Core>
#include <algorithm>

#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/pooling/bilinear.h"
#include "lockstep/model/layers/pooling/pooling.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// `window` is that of the reverse pooling: its windows are the pixels of the input.
template <typename T>
class UpSampling2DOperation final : public Operation {
 public:
  UpSampling2DOperation(std::int64_t batch, const WindowGeometry& window)
      : rows_(batch * window.output_height), w_(window), sum_(window.channels) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = false};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    const auto* from = static_cast<const T*>(t.inputs[0].data());
    auto* to = static_cast<T*>(t.output.data());
    for (std::int64_t row = 0; row < rows_; ++row) {
      const T* const first = to;
      for (std::int64_t x = 0; x < w_.output_width; ++x, from += w_.channels)
        for (std::int64_t k = 0; k < w_.kernel_width; ++k) to = std::copy_n(from, w_.channels, to);
      for (std::int64_t k = 1; k < w_.kernel_height; ++k) to = std::copy_n(first, row_size(), to);
    }
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (t.input_gradients[0].empty()) return;
    const auto* const from = static_cast<const T*>(t.output_gradient.data());
    auto* to = static_cast<T*>(t.input_gradients[0].data());
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t x = 0; x < w_.output_width; ++x, to += w_.channels) {
        sum_.setZero();
        for (std::int64_t ky = 0; ky < w_.kernel_height; ++ky)
          for (std::int64_t kx = 0; kx < w_.kernel_width; ++kx)
            add_to(sum_.data(),
                   from + (row * w_.kernel_height + ky) * row_size() +
                       (x * w_.kernel_width + kx) * w_.channels,
                   w_.channels);
        narrow(sum_.data(), w_.channels, to);
      }
  }

 private:
  std::int64_t row_size() const { return w_.width * w_.channels; }

  std::int64_t rows_;
  WindowGeometry w_;
  Eigen::ArrayXf sum_;
};

// Loops count in int64: GCC 12 miscompiles at -O1 a loop that compares a uint32 with an int64 and
// passes it to BilinearAxis::sources().
template <typename T>
class BilinearOperation final : public Operation {
 public:
  explicit BilinearOperation(const BilinearSpec& spec)
      : s_(spec), sum_(spec.channels), wide_(spec.channels, 4) {}
  Needs needs() const override {
    return {.inputs_in_backward = false, .output_in_backward = false};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    auto* to = static_cast<T*>(t.output.data());
    for (std::int64_t image = 0; image < s_.batch; ++image) {
      const T* const from =
          static_cast<const T*>(t.inputs[0].data()) + image * s_.vertical.extent * input_row();
      for (std::int64_t y = 0; y < s_.output_height(); ++y) {
        const auto [top, bottom, down] = s_.vertical.sources(static_cast<std::uint32_t>(y));
        for (std::int64_t x = 0; x < s_.output_width(); ++x, to += s_.channels) {
          const auto [left, right, along] = s_.horizontal.sources(static_cast<std::uint32_t>(x));
          // Interpolates two pixels of a row, copied to columns `first` and `first` + 1 of wide_.
          const auto between = [&, left = left, right = right, along = along](std::uint32_t row,
                                                                              int first) {
            const T* const pixels = from + row * input_row();
            return pixel(pixels + left * s_.channels, first) * (1 - along) +
                   pixel(pixels + right * s_.channels, first + 1) * along;
          };
          assign(between(top, 0) * (1 - down) + between(bottom, 2) * down, to, s_.channels,
                 wide_.data());
        }
      }
    }
  }

  // Every input gathers from the outputs that read it.
  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (t.input_gradients[0].empty()) return;
    auto* to = static_cast<T*>(t.input_gradients[0].data());
    for (std::int64_t image = 0; image < s_.batch; ++image) {
      const T* const from = static_cast<const T*>(t.output_gradient.data()) +
                            image * s_.output_height() * output_row();
      for (std::uint32_t y = 0; y < s_.vertical.extent; ++y)
        for (std::uint32_t x = 0; x < s_.horizontal.extent; ++x, to += s_.channels) {
          sum_.setZero();
          for (std::uint32_t row = s_.vertical.begin(y); row < s_.vertical.end(y); ++row) {
            const float down = s_.vertical.share(row, y);
            for (std::uint32_t k = s_.horizontal.begin(x); k < s_.horizontal.end(x); ++k)
              sum_ += pixel(from + row * output_row() + k * s_.channels, 0) *
                      (down * s_.horizontal.share(k, x));
          }
          narrow(sum_.data(), s_.channels, to);
        }
    }
  }

 private:
  // The pixel as float32: in place, or a copy in column `copy` of wide_.
  ConstFloatArray pixel(const T* at, int copy) {
    return widened(at, s_.channels, wide_.col(copy).data());
  }
  std::int64_t input_row() const { return s_.horizontal.extent * s_.channels; }
  std::int64_t output_row() const { return s_.output_width() * s_.channels; }

  BilinearSpec s_;
  Eigen::ArrayXf sum_;
  Eigen::ArrayXXf wide_;  // pixels [channels, 4]
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> UpSampling2D::compile_cpu(const CompileContext& context,
                                                     cpu::Context& cpu) const {
  const bool is_bfloat16 = cpu.type == cpu::memory::data_type::bf16;
  if (options_.interpolation == Interpolation::bilinear) {
    const BilinearSpec spec = bilinear_spec(context.batch, context.inputs.front(), options_.size);
    if (is_bfloat16) return std::make_unique<cpu::BilinearOperation<Eigen::bfloat16>>(spec);
    return std::make_unique<cpu::BilinearOperation<float>>(spec);
  }
  const WindowGeometry window = reversed_up_sampling(context.output, options_.size);
  if (is_bfloat16)
    return std::make_unique<cpu::UpSampling2DOperation<Eigen::bfloat16>>(context.batch, window);
  return std::make_unique<cpu::UpSampling2DOperation<float>>(context.batch, window);
}

}  // namespace lockstep::inline v0::model
