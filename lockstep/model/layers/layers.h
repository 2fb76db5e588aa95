// All layers.
#pragma once

#include "lockstep/model/layers/batch_normalization.h"
#include "lockstep/model/layers/conv_2d.h"
#include "lockstep/model/layers/dense.h"
#include "lockstep/model/layers/elementwise.h"
#include "lockstep/model/layers/pooling.h"
