// Several sources combined into one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/order/interleave_order.h"
#include "lockstep/data/sample.h"

namespace lockstep::data {

/// Base class. If the images of the sources have different normalizations, or some records are not images, all records
/// are delivered as features.
class JoinedSource : public RecordSource {
 public:
  const SampleSpec& spec() const override { return inputs_.front()->spec(); }
  std::int64_t size() const override { return size_; }
  bool has_images() const override { return has_images_; }
  bool has_encoded_images() const override { return has_encoded_images_; }
  ChannelNormalization normalization() const override;
  std::vector<std::string> class_names() const override { return class_names_; }
  std::vector<DamagedFile> damage() const override;
  std::string description() const override;
  std::string preparation() const override;

 protected:
  /// `word` names the operation in errors ("interleave") and `how` in descriptions ("one after the other"). Throws
  /// Error (input) that describes the difference if the specs of the samples or the class names differ.
  JoinedSource(std::vector<std::shared_ptr<const RecordSource>> inputs, std::string_view word, std::string how);

  std::vector<std::int64_t> sizes() const;
  /// Reads a record of one input. The random choices of its maps and recipes differ from those of all other inputs,
  /// even of inputs with the same source.
  void read_of(std::size_t input, std::int64_t index, Sample& sample) const;

 private:
  std::vector<std::shared_ptr<const RecordSource>> inputs_;
  std::string how_;
  std::vector<std::string> class_names_;
  std::int64_t size_ = 0;
  bool has_images_ = true;
  bool has_encoded_images_ = true;
};

class ConcatenatedSource final : public JoinedSource {
 public:
  /// The records of several sources, one source after the other. At least one input. Throws Error (input) if their
  /// samples differ.
  explicit ConcatenatedSource(std::vector<std::shared_ptr<const RecordSource>> inputs);

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  std::vector<std::int64_t> ends_;  // of each input, as ids of this source
};

class InterleavedSource final : public JoinedSource {
 public:
  /// Blocks of records from several sources in turn. Throws Error (input) without inputs, if their samples differ, and
  /// for a cycle or a block of less than 1.
  InterleavedSource(std::vector<std::shared_ptr<const RecordSource>> inputs, std::int64_t cycle_length,
                    std::int64_t block_length);

  void read(std::int64_t record_id, Sample& sample) const override;

 private:
  InterleaveOrder order_;
};

}  // namespace lockstep::data
