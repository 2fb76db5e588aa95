#pragma once

#include <algorithm>
#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct EmbeddingSpec;

/// A trained row for each index: an int32 input of the network, [...] to [..., dimension]. Array
/// "embeddings" [vocabulary, dimension], initially uniform in (-0.05, 0.05), as in Keras; a
/// TiedDense may share it.
class Embedding final : public BuiltinLayer {
 public:
  /// Vocabulary and dimension are required.
  struct Options {
    std::int64_t vocabulary =
        0;  ///< indices are 0 to vocabulary - 1; a batch with others is refused
    std::int64_t dimension = 0;  ///< elements of a row
    float stddev = 0;            ///< if above 0: standard deviation of normal initial rows
  };
  /// Sizes are checked when the layer is added to a network.
  explicit Embedding(const Options& options) : options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  std::string kind() const override { return "embedding"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override {
    return {.index_count = std::max<std::int64_t>(options_.vocabulary, 1),
            .shares_parameter = true,
            .incremental = true,
            .incremental_on_gpu = true};
  }

 private:
  EmbeddingSpec spec(const CompileContext& context) const;

  Options options_;
};

/// An embedding for one batch size.
struct EmbeddingSpec {
  std::int64_t count = 0;      ///< indices of the batch
  std::int64_t dimension = 0;  ///< elements of a row
  bool training = false;       ///< whether a backward pass follows
};

}  // namespace lockstep::inline v0::model
