#include "lockstep/model/layer/builtin_layer.h"

#include "lockstep/model/layer/backend.h"

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> BuiltinLayer::compile(const CompileContext& context,
                                                 Backend& backend) const {
  return backend.compile(*this, context);
}

}  // namespace lockstep::inline v0::model
