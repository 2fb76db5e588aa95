"""A rank: lockstep.keras, against one process that has all samples."""
import os
import tempfile

os.environ["KERAS_BACKEND"] = "torch"

import keras  # noqa: E402
import lockstep.keras as hvd  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
BATCH, STEPS = 4, 5


def model_of(seed, optimizer):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(8, "tanh"),
                              keras.layers.Dense(1)])
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.9)


def fit(model, inputs, batch, epochs=1, callbacks=()):
    targets = (inputs ** 2).sum(1, keepdims=True)
    return model.fit(inputs, targets, batch, epochs, verbose=0, shuffle=False,
                     callbacks=list(callbacks)).history


def assert_equal(model, other):
    for one, two in zip(model.get_weights(), other.get_weights()):
        numpy.testing.assert_allclose(one, two, 1e-5, 1e-6)


everything = numpy.random.default_rng(0).normal(size=(STEPS, size, BATCH, 3)).astype("float32")
mine = everything[:, rank].reshape(-1, 3)
whole = everything.reshape(-1, 3)

# Weights of rank 0, gradients and metrics of all.
alone = model_of(7, sgd())
wanted = fit(alone, whole, size * BATCH)
averages = hvd.callbacks.MetricAverageCallback()
for options in ({}, {"gradient_predivide_factor": 2.0}):
    model = model_of(7 if rank == 0 else 8, hvd.DistributedOptimizer(sgd(), **options))
    found = fit(model, mine, BATCH, callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0), averages])
    assert_equal(model, alone)
    for name in ("loss", "mae"):
        numpy.testing.assert_allclose(found[name], wanted[name], 1e-4)

# From a file of rank 0, with the state of the optimizer.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "model.keras")
    model.save(path)
    assert type(keras.saving.load_model(path).optimizer) is type(sgd())
    loaded = hvd.load_model(path)
fit(loaded, mine, BATCH)
fit(alone, whole, size * BATCH)
assert_equal(loaded, alone)

# The learning rate.
model = model_of(7, hvd.DistributedOptimizer(sgd()))
found = fit(model, mine, BATCH, 4, [
    hvd.callbacks.LearningRateWarmupCallback(0.1 * size, 2, verbose=1),
    hvd.callbacks.LearningRateScheduleCallback(0.1 * size, 0.1, 2)])
numpy.testing.assert_allclose(
    found["lr"], [0.1 + 0.1 * (size - 1) / 2, 0.1 * size, 0.1 * size, 0.01 * size], 1e-5)
assert model.optimizer.momentum == 0.9

assert hvd.allreduce(rank, op=hvd.Sum) == size * (size - 1) / 2
assert hvd.allgather(numpy.full((1,), rank)).tolist() == list(range(size))
assert hvd.broadcast(float(rank), 1) == 1
# Gradients that overflow on one rank are skipped on all.
keras.config.set_dtype_policy("mixed_float16")
model = model_of(7, hvd.DistributedOptimizer(sgd()))
targets = numpy.zeros((STEPS * BATCH, 1))
if rank == 0:
    targets[:BATCH] = 1e30
model.fit(mine, targets, BATCH, verbose=0, shuffle=False)
assert model.optimizer.inner_optimizer.iterations.numpy() == STEPS - 1
numpy.testing.assert_array_equal(model.get_weights()[0], hvd.broadcast(model.get_weights()[0], 0))
keras.config.set_dtype_policy("float32")
for wrong in ({"op": hvd.Max}, {"op": hvd.Sum, "gradient_predivide_factor": 2.0},
              {"backward_passes_per_step": 2}):
    try:
        hvd.DistributedOptimizer(sgd(), **wrong)
    except ValueError as error:
        assert "[DistributedOptimizer]" in str(error)
    else:
        raise AssertionError(f"not refused: {wrong}")
hvd.shutdown()
print(f"rank {rank} of {size}: all right", flush=True)
