// All layers.
#pragma once

#include "model/layers/batch_normalization.h"
#include "model/layers/conv_2d.h"
#include "model/layers/dense.h"
#include "model/layers/elementwise.h"
#include "model/layers/pooling.h"
