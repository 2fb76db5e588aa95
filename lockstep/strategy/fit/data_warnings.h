// What the log says about a data set, and warnings of what may be wrong with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/sample/batch.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/data/text/text_schema.h"

namespace lockstep::strategy {

class Strategy;

/// Logs on the chief if `text` is read with the tokenizer of a checkpoint because the file is
/// missing or has changed.
void log_tokenizer_source(const Strategy& strategy, const data::TextSchema& text);

/// A warning that `dataset`, with labels up to `highest_label`, may have other classes than those
/// of the network's `outputs`: it lacks the last ones, and no names tell that they are the same.
/// Empty if there is nothing to warn of.
std::string class_warning(const data::Dataset& dataset, std::int64_t outputs,
                          std::int32_t highest_label);

/// A warning that names the columns of a table (SourceInfo::feature_names) whose values are far
/// from unit scale, and what to do; empty if there are none. Reads up to 1000 records, spread over
/// the data set. Not for data sets with maps or other preparation after their record operations.
std::string scale_warning(const data::Dataset& dataset);
/// A warning that a text is a few very long samples: perhaps its length was meant in other units
/// than tokens. Empty for other data.
std::string length_warning(const data::Dataset& dataset);
/// Logs these warnings on the chief.
void warn_of_scales(const Strategy& strategy, const data::Dataset& dataset);
/// Logs on the chief what a table was read as, and what may be wrong with it
/// (TableSchema::summary, warnings). `trained`: the schema of the training table, if that is
/// another one. Nothing for other data.
void report_table(const Strategy& strategy, const data::Dataset& dataset,
                  const data::TableSchema* trained = nullptr);

/// Where the first NaN or infinity in the features or targets of these parts is, for the message of
/// a skipped step: "train-0.tfrecord: record 3 has nan in the feature number 2 of 4". Empty if
/// there is none.
std::string not_finite_text(const data::RecordSource& source,
                            const std::vector<data::Batch>& parts);

}  // namespace lockstep::strategy
