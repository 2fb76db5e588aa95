// The network as TensorBoard draws it.
#pragma once

#include <string>

#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::train {

/// Returns a tensorflow.GraphDef for SummaryWriter::graph(): a node with the operation
/// "Placeholder" for each input, and one for each layer, whose operation is its "type" in
/// descriptions. Its attributes are the options of the layer, the shapes of its parameters ("shape
/// of kernel"), their number, whether they are frozen ("trained") and, for an output of the
/// network, the name of the output. Edges have shapes, with -1 as the extent of the batch. Layers
/// with "/" in their names are drawn as groups.
std::string network_graph(const model::Network& network);

}  // namespace lockstep::inline v0::train
