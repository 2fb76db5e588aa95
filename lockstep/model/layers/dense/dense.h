#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct DenseSpec;

/// y = x W^T + b over the last axis, [..., F] to [..., units]: what Dense and TiedDense share.
/// Parameter 0 is W [units, F], the next one, if any, b [units].
class FullyConnected : public BuiltinLayer {
 public:
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  std::int64_t flop(const CompileContext& context) const override;
  Traits traits() const override {
    return {.absorbs_relu = true,
            .incremental = true,
            .incremental_on_gpu = true,
            .computes_loss = true};
  }

 protected:
  /// `use_bias`: whether to add b.
  explicit FullyConnected(bool use_bias) : use_bias_(use_bias) {}

 private:
  DenseSpec spec(const CompileContext& context) const;

  bool use_bias_;
};

/// Fully connected over the last axis: [..., F] to [..., units], y = x W^T + b. Kernel [units, F],
/// bias [units].
class Dense final : public FullyConnected {
 public:
  /// Options, as in Keras.
  struct Options {
    std::int64_t units = 0;  ///< elements of an output row; required
    bool use_bias = true;    ///< whether to add a bias to each unit
    /// Initial values of the kernel; biases start at 0.
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;
    float stddev = 0;  ///< if above 0: standard deviation of a normal initial kernel
  };
  /// Sizes are checked when the layer is added to a network.
  explicit Dense(const Options& options) : FullyConnected(options.use_bias), options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "dense"; }
  Shape build(BuildContext& context) const override;

 private:
  Options options_;
};

/// Dense with the table of an Embedding as its kernel (Press and Wolf, arXiv 1608.05859):
/// [..., dimension] to [..., vocabulary]. The gradients of both uses add up. Own parameter: bias
/// [vocabulary], unless use_bias is false.
class TiedDense final : public FullyConnected {
 public:
  /// `to` is required.
  struct Options {
    std::string to;         ///< name of the Embedding, an earlier layer of the network
    bool use_bias = false;  ///< whether to add a bias to each output
  };
  /// The embedding is looked up when the layer is added to a network.
  explicit TiedDense(const Options& options)
      : FullyConnected(options.use_bias), options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  std::string kind() const override { return "tied_dense"; }
  Shape build(BuildContext& context) const override;

 private:
  Options options_;
};

/// A fully connected layer for one batch size.
struct DenseSpec {
  std::int64_t rows = 0;        ///< batch x all axes but the last
  std::int64_t inputs = 0;      ///< elements of an input row
  std::int64_t units = 0;       ///< elements of an output row
  bool bias = true;             ///< whether to add a bias to each unit
  bool relu = false;            ///< whether to fuse a ReLU into the output
  bool training = false;        ///< whether a backward pass follows
  bool input_gradient = false;  ///< whether backward must write the input's gradient
  std::int64_t loss_rows = 0;   ///< CompileContext::loss_rows
  std::int64_t row_stride = 0;  ///< elements per output row, with loss_rows only; 0: units
};

}  // namespace lockstep::inline v0::model
