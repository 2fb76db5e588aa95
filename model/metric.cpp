#include "model/metric.h"

namespace lockstep::model {

MetricSums& MetricSums::operator+=(const MetricSums& other) {
  loss += other.loss;
  samples += other.samples;
  correct += other.correct;
  correct_top5 += other.correct_top5;
  has_accuracy = has_accuracy || other.has_accuracy;
  return *this;
}

}  // namespace lockstep::model
