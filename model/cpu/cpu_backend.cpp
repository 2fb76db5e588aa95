#include <Eigen/Core>
#include <algorithm>

#include "device/error.h"
#include "model/backend.h"
#include "model/cpu/onednn.h"
#include "model/cpu/operations.h"

namespace lockstep::model {
namespace {

class CpuBackend final : public Backend {
 public:
  std::string name() const override { return "cpu"; }
  bool runs_on_host() const override { return true; }
  device::Allocator& allocator() override { return allocator_; }

  std::unique_ptr<Operation> conv_2d(const Conv2DSpec& spec) override { return cpu::make_conv_2d(dnn_, spec); }
  std::unique_ptr<Operation> dense(const DenseSpec& spec) override { return cpu::make_dense(dnn_, spec); }
  std::unique_ptr<Operation> pool_2d(const Pool2DSpec& spec) override { return cpu::make_pool_2d(dnn_, spec); }
  std::unique_ptr<Operation> batch_normalization(const BatchNormalizationSpec& spec) override {
    return cpu::make_batch_normalization(dnn_, spec);
  }
  std::unique_ptr<Operation> relu(std::int64_t elements, bool training) override {
    return cpu::make_relu(dnn_, elements, training);
  }
  std::unique_ptr<Operation> dropout(const DropoutSpec& spec) override { return cpu::make_dropout(spec); }
  std::unique_ptr<Operation> add(bool relu) override { return cpu::make_add(relu); }
  std::unique_ptr<Operation> softmax(std::int64_t rows, std::int64_t width, bool training) override {
    return cpu::make_softmax(dnn_, rows, width, training);
  }

  void accumulate(std::span<float> target, std::span<const float> addend) override {
    const auto count = static_cast<Eigen::Index>(target.size());
    Eigen::Map<Eigen::ArrayXf>(target.data(), count) += Eigen::Map<const Eigen::ArrayXf>(addend.data(), count);
  }
  void copy(std::span<float> target, std::span<const float> source) override {
    std::ranges::copy(source, target.begin());
  }

 private:
  device::HostAllocator allocator_;
  cpu::OneDnn dnn_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(device::Device device) {
  if (device.kind != device::DeviceKind::cpu)
    throw Error(ErrorCategory::device, to_string(device),
                "training needs a backend for this device; this version has one for cpu:0", "use --devices cpu:0");
  return std::make_unique<CpuBackend>();
}

}  // namespace lockstep::model
