"""Callbacks for model.fit() of a job of several ranks, which all have the same number of batches.
"""
import keras
import torch

from .. import torch as hvd


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Copies the weights of the model and the state of its optimizer from a rank to all others when
    the training begins; for a model without weights so far, after its first batch.

    Args:
        root_rank: the rank.
        device: not needed.
    """

    def __init__(self, root_rank=0, device=""):
        super().__init__()
        self._root_rank = root_rank
        self._is_done = False

    def on_train_begin(self, logs=None):
        self._is_done = False
        if self.model.built:
            self._broadcast()

    def on_train_batch_end(self, batch, logs=None):
        if not self._is_done:
            self._broadcast()

    def _broadcast(self):
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        variables = [*self.model.variables, *(optimizer.variables if optimizer else [])]
        hvd.broadcast_parameters([(f"keras.{index}", one.value.detach())
                                  for index, one in enumerate(variables)], self._root_rank)
        self._is_done = True


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their averages over ranks, for the callbacks after it:
    those that save, stop or print.

    Args:
        device: not needed.
        process_set: the ranks.
    """

    def __init__(self, device="", process_set=hvd.global_process_set):
        super().__init__()
        self._process_set = process_set

    def on_epoch_end(self, epoch, logs=None):
        if logs and self._process_set.included():
            names = sorted(logs)
            values = torch.tensor([float(logs[name]) for name in names], dtype=torch.float64)
            averages = hvd.allreduce(values, name="keras.metrics", process_set=self._process_set)
            logs.update(zip(names, averages.tolist()))


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to ``initial_lr`` times a multiplier.

    Args:
        initial_lr: the learning rate that is multiplied.
        multiplier: a function of the epoch, or a number, to the power of the number of epochs since
            ``start_epoch``.
        start_epoch, end_epoch: from the first and before the second, the rate is set.
        staircase: once at the beginning of each epoch; else before each batch, with fractions of
            the epoch.
        momentum_correction: for the batch in which the rate changes, multiply the momentum of the
            optimizer by the same (Goyal et al., "Accurate, large minibatch SGD", 2017).
        steps_per_epoch: batches of an epoch; by default those of fit().
    """

    def __init__(self, initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True,
                 momentum_correction=True, steps_per_epoch=None):
        super().__init__()
        self.initial_lr, self.start_epoch, self.end_epoch = initial_lr, start_epoch, end_epoch
        self.multiplier = (multiplier if callable(multiplier)
                           else lambda epoch: multiplier ** (epoch - start_epoch))
        self.staircase, self.momentum_correction = staircase, momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self._epoch = 0
        self._momentum = None

    def _steps(self):
        steps = self.steps_per_epoch or self.params.get("steps")
        if not steps:
            raise ValueError(f"[{type(self).__name__}] expected steps_per_epoch, or fit() with a "
                             "known number of batches, got neither")
        return steps

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if self._epoch < self.start_epoch or (
                self.end_epoch is not None and self._epoch >= self.end_epoch):
            return
        if self.staircase and batch > 0:
            return
        epoch = self._epoch + (0 if self.staircase else batch / self._steps())
        optimizer = self.model.optimizer
        old, new = float(optimizer.learning_rate), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = new
        if self.momentum_correction and old and getattr(optimizer, "momentum", None):
            self._momentum = optimizer.momentum
            optimizer.momentum *= new / old

    def on_train_batch_end(self, batch, logs=None):
        if self._momentum is not None:
            self.model.optimizer.momentum, self._momentum = self._momentum, None

    def on_epoch_end(self, epoch, logs=None):
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from that of one rank, ``initial_lr / size()``, to ``initial_lr`` in
    the first epochs: a large batch trains badly with a large rate from the beginning.

    Args:
        initial_lr: the rate at the end: that of one rank, times the number of ranks.
        warmup_epochs: in so many epochs.
        verbose: print the rate at the end.
        momentum_correction, steps_per_epoch: as for LearningRateScheduleCallback.
    """

    def __init__(self, initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None,
                 verbose=0):
        def multiplier(epoch):
            done = (epoch + 1 / self._steps()) / warmup_epochs
            return (1 + done * (hvd.size() - 1)) / hvd.size()

        super().__init__(initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction,
                         steps_per_epoch)
        self._verbose = verbose

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self._verbose and hvd.rank() == 0:
            print(f"\nlockstep: learning rate {float(self.model.optimizer.learning_rate):g} after "
                  f"{self.end_epoch} epochs of warmup", flush=True)
