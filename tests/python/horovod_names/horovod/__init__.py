"""The name horovod, for tests of Horovod: lockstep.torch, and what they need of Horovod's tools."""
