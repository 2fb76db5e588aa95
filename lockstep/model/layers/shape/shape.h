// Layers that move elements without computing: other shapes, other orders, several inputs in one.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

struct StridedCopy;

/// Any shape to `shape`, with the same elements in the same order and memory.
class Reshape final : public Layer {
 public:
  /// Options, as in Keras.
  struct Options {
    Shape shape;  ///< shape of one sample; required
  };
  /// The shape is checked when the layer is added to a network.
  explicit Reshape(Options options) : options_(std::move(options)) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  std::string kind() const override { return "reshape"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context,
                                     Backend& backend) const override;

 private:
  Options options_;
};

/// A layer that copies its inputs, or parts of them, to places in its output; the rest is zero.
class CopyLayer : public BuiltinLayer {
 public:
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const final;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const final;

 protected:
  /// One copy per input, from it to the output.
  virtual std::vector<StridedCopy> copies(const CompileContext& context) const = 0;
};

/// Reorders the axes of a sample: axis k of the output is axis dims[k] of the input.
class Permute final : public CopyLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    /// Each axis once, counted from 1 as axis 0 is the batch: {2, 1} transposes. Required.
    std::vector<std::int64_t> dims;
  };
  /// Checked when the layer is added to a network.
  explicit Permute(Options options) : options_(std::move(options)) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "permute"; }
  Shape build(BuildContext& context) const override;

 private:
  std::vector<StridedCopy> copies(const CompileContext& context) const override;

  Options options_;
};

/// Joins two or more inputs along one axis; the other axes must agree.
class Concatenate final : public CopyLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    /// Counted from 1, as axis 0 is the batch, or from the end: -1 is the last axis.
    std::int64_t axis = -1;
  };
  Concatenate() : options_() {}
  /// The axis is checked when the layer is added to a network.
  explicit Concatenate(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "concatenate"; }
  Shape build(BuildContext& context) const override;

 private:
  std::vector<StridedCopy> copies(const CompileContext& context) const override;

  Options options_;
};

/// Adds rows and columns of zeros: [H, W, C] to [top + H + bottom, left + W + right, C].
class ZeroPadding2D final : public CopyLayer {
 public:
  /// Numbers of zeros, none of them negative.
  struct Options {
    std::int64_t top = 1;     ///< rows above
    std::int64_t bottom = 1;  ///< rows below
    std::int64_t left = 1;    ///< columns on the left
    std::int64_t right = 1;   ///< columns on the right
  };
  ZeroPadding2D() : options_() {}
  /// Checked when the layer is added to a network.
  explicit ZeroPadding2D(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "zero_padding2d"; }
  Shape build(BuildContext& context) const override;

 private:
  std::vector<StridedCopy> copies(const CompileContext& context) const override;

  Options options_;
};

/// Removes positions at both ends of a sequence: [T, C] to [T - before - after, C].
class Cropping1D final : public CopyLayer {
 public:
  /// Numbers of positions, none of them negative; at least one position remains.
  struct Options {
    std::int64_t before = 1;  ///< at the beginning
    std::int64_t after = 1;   ///< at the end
  };
  Cropping1D() : options_() {}
  /// Checked when the layer is added to a network.
  explicit Cropping1D(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "cropping1d"; }
  Shape build(BuildContext& context) const override;

 private:
  std::vector<StridedCopy> copies(const CompileContext& context) const override;

  Options options_;
};

}  // namespace lockstep::inline v0::model
