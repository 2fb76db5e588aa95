#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct AttentionSpec;

/// Scaled dot-product attention of several heads (Vaswani et al., arXiv 1706.03762) without
/// projections: the output at each query position of a head is the mean of the values, weighted by
/// the softmax of query · key / sqrt(elements of a head).
///
/// With one input [T, (heads + 2 key_value_heads) · E], rows contain the queries of all heads, then
/// the keys, then the values. With three inputs: queries [T, heads · E], keys [S, key_value_heads ·
/// E] and values [S, key_value_heads · E]. Output [T, heads · E].
///
/// An additional input, an int32 input [T] of the network, holds segments: 0 is padding, k >= 1
/// document k. A position attends only to positions of its own document. The output is 0 for
/// padding.
class Attention final : public BuiltinLayer {
 public:
  /// Options; `heads` is required.
  struct Options {
    std::int64_t heads = 0;  ///< number of query heads
    /// Number of heads of keys and values; each serves heads / key_value_heads consecutive query
    /// heads (grouped-query attention, arXiv 2305.13245). 0: equal to `heads`.
    std::int64_t key_value_heads = 0;
    bool causal = false;  ///< position i attends to positions up to i; requires S = T
    /// Rotates queries and keys by angles that grow with the position (arXiv 2104.09864): elements
    /// i and i + E/2 by position · rotary^(-2i/E), as in Llama. 0: no rotation.
    float rotary = 0;
  };
  /// Options are checked when the layer is added to a network.
  explicit Attention(const Options& options) : options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  /// Number of heads of keys and values.
  std::int64_t key_value_heads() const;
  std::string kind() const override { return "attention"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  std::int64_t flop(const CompileContext& context) const override;
  Traits traits() const override;
  std::optional<std::size_t> index_input(std::size_t inputs) const override;

 private:
  AttentionSpec spec(const CompileContext& context) const;

  Options options_;
};

/// An attention for one batch size.
struct AttentionSpec {
  std::int64_t batch = 0;            ///< samples
  std::int64_t queries = 0;          ///< T, or the rows of a pass
  std::int64_t keys = 0;             ///< S
  std::int64_t heads = 0;            ///< number of query heads
  std::int64_t key_value_heads = 0;  ///< divides `heads`
  std::int64_t width = 0;            ///< E, elements of a head
  bool packed = false;               ///< one input for queries, keys and values
  bool causal = false;               ///< position i attends to positions up to i
  float rotary = 0;                  ///< 0: no rotation
  float scale = 0;                   ///< 1 / sqrt(width)
  bool segments = false;             ///< whether there are segments, which are read
  bool training = false;             ///< whether a backward pass follows
  /// Keys and values are kept from pass to pass (CompileContext::positions); a pass reads those of
  /// its rows.
  bool cached = false;

  /// The input with queries, keys or values, and their position in its rows.
  struct Part {
    std::size_t input = 0;    ///< index of the input
    std::int64_t offset = 0;  ///< elements of a row before head 0
    std::int64_t stride = 0;  ///< elements of a row
  };
  Part part(std::size_t which) const;  ///< queries (0), keys (1) or values (2)

  /// The angle in radians by which pair `i` of the elements at `position` is rotated.
  double angle(std::int64_t position, std::int64_t i) const;

  /// Query heads that share a head of keys and values.
  std::int64_t group() const { return heads / key_value_heads; }
  /// Bytes of the logarithms of the softmaxes' divisors [batch, heads, T], which forward saves.
  std::size_t saved_bytes() const {
    return training ? static_cast<std::size_t>(batch * heads * queries) * sizeof(float) : 0;
  }
};

}  // namespace lockstep::inline v0::model
