// What a device supplies to a plan: one operation per layer kind. Control flow, shapes and memory are the plan's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "device/buffer.h"
#include "model/layer.h"
#include "model/layers/window.h"

namespace lockstep::model {

struct Conv2DSpec {
  std::int64_t batch = 0;
  WindowGeometry window;
  std::int64_t filters = 0;
  std::int64_t groups = 1;
  bool bias = true;
  bool relu = false;  ///< fused into the output
  bool training = false;
  bool input_gradient = false;
};

struct DenseSpec {
  std::int64_t batch = 0;
  std::int64_t inputs = 0;
  std::int64_t units = 0;
  bool bias = true;
  bool relu = false;
  bool training = false;
  bool input_gradient = false;
};

struct Pool2DSpec {
  enum class Kind { max, average };
  Kind kind = Kind::max;
  std::int64_t batch = 0;
  WindowGeometry window;
  bool training = false;
};

struct BatchNormalizationSpec {
  std::int64_t rows = 0;  ///< batch x height x width: the samples of each channel's statistics
  std::int64_t channels = 0;
  float epsilon = 0;
  float momentum = 0;
  bool relu = false;
  bool training = false;
};

struct DropoutSpec {
  std::string layer;  ///< its name keys the mask
  std::int64_t batch = 0;
  std::int64_t features = 0;  ///< elements of one sample
  float rate = 0;
};

/// Kernels of one device for one replica.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;
  virtual bool runs_on_host() const = 0;
  virtual device::Allocator& allocator() = 0;

  virtual std::unique_ptr<Operation> conv_2d(const Conv2DSpec& spec) = 0;
  virtual std::unique_ptr<Operation> dense(const DenseSpec& spec) = 0;
  virtual std::unique_ptr<Operation> pool_2d(const Pool2DSpec& spec) = 0;
  virtual std::unique_ptr<Operation> batch_normalization(const BatchNormalizationSpec& spec) = 0;
  virtual std::unique_ptr<Operation> relu(std::int64_t elements, bool training) = 0;
  virtual std::unique_ptr<Operation> dropout(const DropoutSpec& spec) = 0;
  virtual std::unique_ptr<Operation> add(bool relu) = 0;
  virtual std::unique_ptr<Operation> softmax(std::int64_t rows, std::int64_t width, bool training) = 0;

  /// target[i] += addend[i]; for gradients that meet at a fork, and for micro-batches.
  virtual void accumulate(std::span<float> target, std::span<const float> addend) = 0;
  virtual void copy(std::span<float> target, std::span<const float> source) = 0;
};

/// The backend of `device`. Throws Error (device) where this build has none.
std::unique_ptr<Backend> make_backend(device::Device device);

}  // namespace lockstep::model
