#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct GroupNormalizationSpec;

/// Normalizes each group of neighboring channels of a sample over all its positions, then scales
/// and shifts the channels (Wu and He, arXiv 1803.08494). With as many groups as channels, an
/// instance normalization. [..., C] to [..., C]; parameters gamma [C] and beta [C]. The same in
/// training and inference.
class GroupNormalization final : public BuiltinLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    std::int64_t groups = 32;  ///< each has C / groups channels
    float epsilon = 1e-5f;     ///< added to the variance before the square root, as in PyTorch
    bool scale = true;         ///< whether to multiply by gamma
    bool center = true;        ///< whether to add beta
  };
  GroupNormalization() : options_() {}
  /// The options are checked when the layer is added to a network.
  explicit GroupNormalization(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "group_normalization"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;

 private:
  GroupNormalizationSpec spec(const CompileContext& context) const;

  Options options_;
};

/// A normalization of groups for one batch size.
struct GroupNormalizationSpec {
  std::int64_t samples = 0;    ///< the batch
  std::int64_t positions = 0;  ///< all axes but the last
  std::int64_t channels = 0;   ///< the last axis
  std::int64_t groups = 1;     ///< divides the channels
  float epsilon = 0;           ///< added to the variance before the square root
  bool scale = true;           ///< whether there is a gamma
  bool center = true;          ///< whether there is a beta
  bool training = false;       ///< whether a backward pass follows

  constexpr std::int64_t width() const { return channels / groups; }  ///< channels of a group
  /// Bytes of the statistics of all groups, which are kept from forward to backward.
  constexpr std::size_t statistics_bytes() const;
};

/// Statistics of a group of one sample.
struct GroupStatistics {
  float mean = 0;               ///< over the channels and positions of the group
  float inverse_deviation = 0;  ///< 1 / sqrt(variance + epsilon)
};

constexpr std::size_t GroupNormalizationSpec::statistics_bytes() const {
  return training ? static_cast<std::size_t>(samples * groups) * sizeof(GroupStatistics) : 0;
}

}  // namespace lockstep::inline v0::model
