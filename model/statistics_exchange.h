// How the statistics of batch normalization come to be those of several replicas: the model asks, whoever knows the
// others answers.
#pragma once

#include <span>

namespace lockstep::model {

/// Replicas that normalize together. All members make the same calls with the same counts in the same order, also those
/// without samples in a pass. Called on the thread of the model.
class StatisticsExchange {
 public:
  virtual ~StatisticsExchange() = default;

  virtual int members() const = 0;  ///< replicas whose samples are normalized together
  virtual int member() const = 0;   ///< 0 .. members() - 1; this one's number
  /// values[i] becomes its sum over the members: the same bits on all of them. `values` lie in the memory of the
  /// model's device; the sum takes its turn on the stream of the model's backend. Throws Error (communication).
  virtual void sum(std::span<float> values) = 0;
};

}  // namespace lockstep::model
