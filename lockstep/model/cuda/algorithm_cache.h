// A persistent cache of the fastest algorithms for convolutions on a GPU.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep::inline v0::model::cuda {

/// ConvolutionAlgorithm::math of cuDNN's graph API.
constexpr int kGraphMath = -1;

/// The algorithm of one pass of a convolution.
struct ConvolutionAlgorithm {
  /// A cudnnConvolutionFwdAlgo_t, …BwdDataAlgo_t or …BwdFilterAlgo_t; with kGraphMath, the number
  /// of an engine configuration.
  int number = 0;
  int math = 0;                     ///< cudnnMathType_t or kGraphMath
  std::size_t workspace_bytes = 0;  ///< 0 with kGraphMath
  bool folded = false;              ///< whether a FoldedConvolution runs it

  bool operator==(const ConvolutionAlgorithm&) const = default;
};

/// A JSON file that several threads and processes may use concurrently: an array of the fields of
/// each algorithm, in order, the last one only if it is set. Each process merges its results with
/// the file's contents, writes them to a separate temporary file, and renames that. A missing,
/// damaged or unwritable file costs time but does not change results.
class AlgorithmCache {
 public:
  /// No file is used if `file` is empty.
  explicit AlgorithmCache(std::filesystem::path file);

  std::optional<ConvolutionAlgorithm> find(const std::string& convolution) const;
  void add(const std::string& convolution, const ConvolutionAlgorithm& algorithm);

  /// convolutions.json in $LOCKSTEP_CACHE_DIR, $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep; empty
  /// if none of the variables is set.
  static std::filesystem::path default_file();

 private:
  void read();
  void write() const;

  std::filesystem::path file_;
  std::map<std::string, ConvolutionAlgorithm> known_;
};

}  // namespace lockstep::inline v0::model::cuda
