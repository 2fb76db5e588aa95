// Log messages and warnings about a data set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/text/text_schema.h"

namespace lockstep::inline v0::strategy {
class Strategy;
}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0::train {

/// Logs on the chief if `text` is read with the tokenizer of a checkpoint because the file is
/// missing or has changed.
void log_tokenizer_source(const strategy::Strategy& strategy, const data::TextSchema& text);

/// Returns a warning if `dataset`, with labels up to `highest_label`, may have other classes than
/// the network's `outputs`: it lacks the last ones, and there are no class names to compare. Else
/// empty.
std::string class_warning(const data::Dataset& dataset, std::int64_t outputs,
                          std::int32_t highest_label);

/// Returns a warning that lists the columns of a table (SourceInfo::feature_names) whose values are
/// far from unit scale, and a remedy; empty if there are none. Reads up to 1000 records, evenly
/// distributed over the data set. Not for data sets with maps or other preparation after their
/// record operations. With `scales_targets`, targets are not examined: the network scales them.
std::string scale_warning(const data::Dataset& dataset, bool scales_targets = false);
/// Returns a warning if a text has only a few, very long samples: its length may not have been
/// meant in tokens. Else empty.
std::string length_warning(const data::Dataset& dataset);
/// Logs these warnings on the chief.
void warn_of_scales(const strategy::Strategy& strategy, const data::Dataset& dataset,
                    bool scales_targets);
/// Logs on the chief the schema of a table and its problems (TableSchema::summary, warnings).
/// `trained`: the schema of the training table, if it is another one. Does nothing for other data.
void report_table(const strategy::Strategy& strategy, const data::Dataset& dataset,
                  const data::TableSchema* trained = nullptr);

/// Describes the first NaN or infinity in the features or targets of these parts, for the message
/// about a skipped step: "train-0.tfrecord: record 3 has nan in the feature number 2 of 4". Empty
/// if there is none.
std::string not_finite_text(const data::RecordSource& source,
                            const std::vector<data::Batch>& parts);

}  // namespace lockstep::inline v0::train
