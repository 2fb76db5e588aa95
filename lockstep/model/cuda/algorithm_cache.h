// Which algorithm was the fastest for a convolution on a GPU, kept from run to run.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep::model::cuda {

/// How one pass of a convolution is computed.
struct ConvolutionAlgorithm {
  int number = 0;  ///< of cudnnConvolutionFwdAlgo_t, …BwdDataAlgo_t or …BwdFilterAlgo_t
  int math = 0;    ///< cudnnMathType_t
  std::size_t workspace_bytes = 0;

  bool operator==(const ConvolutionAlgorithm&) const = default;
};

/// A JSON file that several threads and processes may use at once: each writes what the file holds and what it has
/// found itself, under a name of its own that is then renamed. A file that is missing, damaged or cannot be written
/// costs time, not results.
class AlgorithmCache {
 public:
  /// No file where `file` is empty.
  explicit AlgorithmCache(std::filesystem::path file);

  std::optional<ConvolutionAlgorithm> find(const std::string& convolution) const;
  void add(const std::string& convolution, const ConvolutionAlgorithm& algorithm);

  /// $LOCKSTEP_CACHE_DIR, $XDG_CACHE_HOME/lockstep or ~/.cache/lockstep, and convolutions.json in it; empty where none
  /// of the variables is set.
  static std::filesystem::path default_file();

 private:
  void read();
  void write() const;

  std::filesystem::path file_;
  std::map<std::string, ConvolutionAlgorithm> known_;
};

}  // namespace lockstep::model::cuda
