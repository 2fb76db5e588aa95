// Columns of a table beside its predictions: predict --keep-columns.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/lockstep/evaluate/prediction_file.h"
#include "lockstep/data/table/schema.h"

namespace lockstep::inline v0::apps {

/// The columns in the list `names` ("id,name") of the table `spec`, a value of --data, which is
/// read with `schema`. Throws Error (input) unless it is a table whose records are its rows, for an
/// unknown column, and the errors of reading it.
CopiedColumns kept_columns(const std::string& names, const std::string& spec,
                           const std::shared_ptr<const data::TableSchema>& schema);

}  // namespace lockstep::inline v0::apps
