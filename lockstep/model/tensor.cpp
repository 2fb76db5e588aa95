#include "lockstep/model/tensor.h"

#include "lockstep/base/error.h"

namespace lockstep::model {

void TensorView::check_type(Precision wanted) const {
  if (type_ != wanted) LOCKSTEP_CHECK_OP(to_string(type_), ==, to_string(wanted));
}

}  // namespace lockstep::model
