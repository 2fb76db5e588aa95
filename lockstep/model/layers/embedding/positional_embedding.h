#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct PositionalEmbeddingSpec;

/// Adds a row to each position of a sequence: [T, D] to [T, D]. Learned: an array "embeddings"
/// [rows, D], initially uniform in (-0.05, 0.05); position t adds row t. Constant: such an array;
/// every position adds row 0, as with the token types of BERT for a text of one type. Sinusoidal:
/// no parameters; position t has sin(t / 10000^(2i/D)) in element 2i and cos of the same in element
/// 2i + 1 (Vaswani et al., arXiv 1706.03762).
class PositionalEmbedding final : public BuiltinLayer {
 public:
  /// The source of the rows.
  enum class Kind { learned, constant, sinusoidal };
  /// Options.
  struct Options {
    Kind kind = Kind::learned;  ///< trained, or computed by a formula
    /// Rows of a trained array. Unused rows admit the weights of a network for longer sequences. 0:
    /// the number of rows used.
    std::int64_t rows = 0;
    float stddev = 0;  ///< if above 0: standard deviation of normal initial rows
  };
  PositionalEmbedding() : options_() {}
  /// The input's shape is checked when the layer is added to a network.
  explicit PositionalEmbedding(const Options& options) : options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "positional_embedding"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override { return {.incremental = true, .incremental_on_gpu = true}; }

 private:
  PositionalEmbeddingSpec spec(const CompileContext& context) const;
  // [T, D]; empty if it is learned.
  std::vector<float> fixed_table(const CompileContext& context) const;

  Options options_;
};

/// The rows [positions, width] that a sinusoidal embedding adds.
std::vector<float> sinusoidal_table(std::int64_t positions, std::int64_t width);

/// A positional embedding for one batch size.
struct PositionalEmbeddingSpec {
  std::int64_t samples = 0;   ///< samples of the batch, each with the same addend
  std::int64_t elements = 0;  ///< per sample: rows x D, or D if it is constant
  std::int64_t width = 0;     ///< stride of the rows: D, or 0 if it is constant
  bool training = false;      ///< whether a backward pass follows
};

}  // namespace lockstep::inline v0::model
