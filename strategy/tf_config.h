#pragma once

#include "strategy/session.h"

namespace lockstep::strategy {

/// Where TF_CONFIG is set on any rank it must agree with the launcher: as many workers as ranks, and that task's number
/// its rank. Throws the same Error (input) on all ranks otherwise: each of the workers that somebody meant would train
/// alone. Collective.
void check_tf_config(const Session& session);

}  // namespace lockstep::strategy
