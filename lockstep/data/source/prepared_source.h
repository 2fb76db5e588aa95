// What a pipeline makes of its records, as records of their own.
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/pipeline/pipeline.h"

namespace lockstep::data {

/// What stands before a word on records: recipe, maps and normalization, chosen by the pass that a record is read for
/// (Sample) and by the record's id here, whatever comes later.
class PreparedSource final : public RecordSource {
 public:
  /// Its order and batches are nothing to this source.
  explicit PreparedSource(Pipeline pipeline);

  const SampleSpec& spec() const override { return pipeline_.spec; }
  std::int64_t size() const override { return pipeline_.source->size(); }
  bool has_images() const override { return pipeline_.gives_pixels(); }
  ChannelNormalization normalization() const override { return normalization_; }
  void read(std::int64_t record_id, Sample& sample) const override;
  std::vector<std::string> class_names() const override { return pipeline_.source->class_names(); }
  std::vector<DamagedFile> damage() const override { return pipeline_.source->damage(); }
  std::vector<StoredFile> files() const override { return pipeline_.source->files(); }
  void will_need(Range record_ids) const override { pipeline_.source->will_need(record_ids); }
  std::string description() const override { return pipeline_.source->description() + pipeline_.preparation(); }
  std::string preparation() const override { return pipeline_.source->preparation() + pipeline_.preparation(); }

 private:
  Pipeline pipeline_;
  ChannelNormalization normalization_;
};

}  // namespace lockstep::data
