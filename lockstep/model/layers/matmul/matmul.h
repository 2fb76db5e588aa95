#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct MatMulSpec;

/// The product of two computed arrays: [..., M, K] and [..., K, N] to [..., M, N], for each index
/// of the axes before, which both have. Attention that is written out consists of two of them; see
/// Attention for the layer that does all of it with less memory.
class MatMul final : public BuiltinLayer {
 public:
  /// Options.
  struct Options {
    bool transpose_b = false;  ///< whether the second array is [..., N, K]
  };
  MatMul() : options_() {}
  /// The shapes are checked when the layer is added to a network.
  explicit MatMul(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "matmul"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  std::int64_t flop(const CompileContext& context) const override;

 private:
  MatMulSpec spec(const CompileContext& context) const;

  Options options_;
};

/// Products of matrices for one batch size.
struct MatMulSpec {
  std::int64_t products = 0;  ///< batch x all axes but the last two
  std::int64_t rows = 0;      ///< M
  std::int64_t inner = 0;     ///< K
  std::int64_t columns = 0;   ///< N
  bool transpose_b = false;   ///< whether the second matrices are [N, K]
  bool training = false;      ///< whether a backward pass follows
};

}  // namespace lockstep::inline v0::model
