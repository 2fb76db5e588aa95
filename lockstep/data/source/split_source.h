// One part of a split data set.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/data/order/record_split.h"
#include "lockstep/data/source/wrapped_source.h"

namespace lockstep::inline v0::data {

/// The records of one part, in their order in the data set. Each class has the same fractions if a
/// record has one class. Not for tables, whose statistics are those of the training part:
/// CsvOptions::split.
class SplitSource final : public WrappedSource {
 public:
  /// Reads the classes of all records, of image folders without their files. Throws Error (input)
  /// for TFRecord files, and for fractions that are not below 1; Error (data) for a part without
  /// records.
  SplitSource(std::shared_ptr<const RecordSource> source, const SplitSelection& selection);

  void read(std::int64_t record_id, Sample& sample) const override {
    source().read(id_of(record_id), sample);
  }
  void prefetch(std::int64_t record_id) const override { source().prefetch(id_of(record_id)); }

 private:
  std::int64_t id_of(std::int64_t record_id) const {
    return ids_[static_cast<std::size_t>(record_id)];
  }

  std::vector<std::int64_t> ids_;  // in the other source
};

}  // namespace lockstep::inline v0::data
