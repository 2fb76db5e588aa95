// Another order or choice of the records of one source.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/sample.h"

namespace lockstep::data {

/// What such sources have in common: everything but which record is where.
class WrappedSource : public RecordSource {
 public:
  const SampleSpec& spec() const override { return source_->spec(); }
  bool has_images() const override { return source_->has_images(); }
  bool has_encoded_images() const override { return source_->has_encoded_images(); }
  device::ChannelNormalization normalization() const override { return source_->normalization(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  std::vector<DamagedFile> damage() const override { return source_->damage(); }
  std::string description() const override { return source_->description() + ", " + word_; }
  std::string preparation() const override { return source_->preparation() + ", " + word_; }

 protected:
  /// `word` tells what is done: "the first 100 records"; it may be set once that is known.
  explicit WrappedSource(std::shared_ptr<const RecordSource> source, std::string word = "")
      : source_(std::move(source)), word_(std::move(word)) {}
  void set_word(std::string word) { word_ = std::move(word); }

  const RecordSource& source() const { return *source_; }

 private:
  std::shared_ptr<const RecordSource> source_;
  std::string word_;
};

}  // namespace lockstep::data
