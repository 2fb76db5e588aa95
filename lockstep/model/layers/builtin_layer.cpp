#include "lockstep/model/layers/builtin_layer.h"

#include "lockstep/model/backend.h"

namespace lockstep::model {

std::unique_ptr<Operation> BuiltinLayer::compile(const CompileContext& context,
                                                 Backend& backend) const {
  return backend.compile(*this, context);
}

}  // namespace lockstep::model
