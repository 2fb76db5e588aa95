// A record with all that a pipeline does to it.
#pragma once

#include <optional>

#include "data/pipeline/pipeline.h"
#include "data/pipeline/recipe_step.h"

namespace lockstep::data {

/// For one thread.
class SampleReader {
 public:
  /// `pipeline` outlives this object.
  explicit SampleReader(const Pipeline& pipeline);
  SampleReader(const SampleReader&) = delete;
  SampleReader& operator=(const SampleReader&) = delete;

  /// Reads the source's record `key.record_id` into `sample`, whose spans have the sizes of the pipeline's spec, and
  /// does to it what the pipeline says. Throws what the source and the maps throw.
  void read(const SampleKey& key, Sample& sample);

 private:
  const Pipeline& pipeline_;
  std::optional<RecipeStep> recipe_;
};

}  // namespace lockstep::data
