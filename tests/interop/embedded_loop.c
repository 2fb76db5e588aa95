/* A program of C99 that owns MPI: a training loop in three sessions in turn, on all ranks, on the
 * even ranks, and in a group of the ranks but the first, while another thread calls MPI all the
 * time. Ranks have different numbers of samples. Each result equals that of one process to 1e-12.
 * The C++ compiler compiles it as C++17, too. */
#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "lockstep/interop/c_api.h"

enum { kSamples = 37, kFeatures = 3, kSteps = 40 };

static double feature(int sample, int at) { return sin(1.7 * sample + 2.3 * at); }
static double target(int sample) {
  return 2 * feature(sample, 0) - feature(sample, 1) + 0.5 * feature(sample, 2) + 1;
}

/* A linear model and its optimizer. */
typedef struct {
  double weights[kFeatures + 1];
  double slopes[kFeatures + 1];
  double speed[kFeatures + 1];
} model;

/* The gradient of the mean squared error of samples [begin, end). */
static void backward(model* m, int begin, int end) {
  int i, k;
  for (k = 0; k <= kFeatures; ++k) m->slopes[k] = 0;
  for (i = begin; i < end; ++i) {
    double error = m->weights[kFeatures] - target(i);
    for (k = 0; k < kFeatures; ++k) error += m->weights[k] * feature(i, k);
    for (k = 0; k < kFeatures; ++k) m->slopes[k] += 2 * error * feature(i, k) / (end - begin);
    m->slopes[kFeatures] += 2 * error / (end - begin);
  }
}

static int descend(void* state) {
  model* m = (model*)state;
  int k;
  for (k = 0; k <= kFeatures; ++k) {
    m->speed[k] = 0.9 * m->speed[k] + m->slopes[k];
    m->weights[k] -= 0.02 * m->speed[k];
  }
  return 0;
}

static void require(int status, const char* what) {
  if (status == LOCKSTEP_OK) return;
  fprintf(stderr, "embedded_loop: %s: %s\n", what, lockstep_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Trains on the ranks of `session`. Rank r of n has samples from r * r / n^2 of all on. */
static void train(lockstep_session* session, const char* what) {
  const int rank = lockstep_rank(session), ranks = lockstep_world_size(session);
  const int begin = kSamples * rank * rank / (ranks * ranks);
  const int end = kSamples * (rank + 1) * (rank + 1) / (ranks * ranks);
  lockstep_optimizer* optimizer = NULL;
  model mine = {{0}, {0}, {0}}, alone = {{0}, {0}, {0}};
  lockstep_parameter parameters[2];
  int step, k;
  parameters[0].name = "weights";
  parameters[0].values = mine.weights;
  parameters[0].gradient = mine.slopes;
  parameters[0].elements = kFeatures;
  parameters[0].type = LOCKSTEP_FLOAT64;
  parameters[1] = parameters[0];
  parameters[1].name = "bias";
  parameters[1].values = mine.weights + kFeatures;
  parameters[1].gradient = mine.slopes + kFeatures;
  parameters[1].elements = 1;
  for (k = 0; k <= kFeatures; ++k) mine.weights[k] = rank; /* of the first rank, 0, for all */
  require(lockstep_optimizer_create(session, parameters, 2, NULL, descend, &mine, &optimizer),
          what);
  require(lockstep_broadcast_parameters(optimizer, 0), what);
  for (step = 0; step < kSteps; ++step) {
    if (end > begin) backward(&mine, begin, end);
    require(lockstep_backward_done(optimizer, end - begin), what);
    require(lockstep_step(optimizer, NULL), what);
    backward(&alone, 0, kSamples);
    descend(&alone);
  }
  for (k = 0; k <= kFeatures; ++k)
    if (!(fabs(mine.weights[k] - alone.weights[k]) <= 1e-12)) {
      fprintf(stderr, "embedded_loop: %s: expected %.17g on rank %d of %d, got %.17g\n", what,
              alone.weights[k], rank, ranks, mine.weights[k]);
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
  lockstep_optimizer_free(optimizer);
}

/* Sends itself messages until the main thread sends the last one. */
static void* chatter(void* comm) {
  MPI_Comm own = *(MPI_Comm*)comm;
  int rank, at_end = 0, received = 0;
  MPI_Comm_rank(own, &rank);
  while (!at_end) {
    MPI_Sendrecv(&rank, 1, MPI_INT, rank, 1, &received, 1, MPI_INT, rank, 1, own,
                 MPI_STATUS_IGNORE);
    MPI_Iprobe(rank, 2, own, &at_end, MPI_STATUS_IGNORE);
  }
  MPI_Recv(&received, 1, MPI_INT, rank, 2, own, MPI_STATUS_IGNORE);
  return NULL;
}

static lockstep_session* start(MPI_Comm ranks) {
  lockstep_session_options options = lockstep_default_session_options();
  lockstep_session* session = NULL;
  options.communicator = (int)MPI_Comm_c2f(ranks);
  require(lockstep_init(&options, &session), "lockstep_init");
  return session;
}

int main(int argc, char** argv) {
  int provided, rank, size, i, count = 0;
  int* others;
  MPI_Comm own, even;
  pthread_t thread;
  lockstep_session* session;
  lockstep_session* group = NULL;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (provided < MPI_THREAD_MULTIPLE) return 77;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2 == 0 ? 0 : MPI_UNDEFINED, rank, &even);
  pthread_create(&thread, NULL, chatter, &own);

  session = start(MPI_COMM_WORLD);
  train(session, "all ranks");
  lockstep_finalize(session);
  if (rank % 2 == 0) {
    session = start(even);
    train(session, "even ranks");
    lockstep_finalize(session);
  }
  session = start(MPI_COMM_WORLD);
  others = (int*)malloc(sizeof(int) * (size_t)size);
  for (i = size - 1; i >= (size > 1); --i) others[count++] = i;
  require(lockstep_group_create(session, others, (size_t)count, &group), "lockstep_group_create");
  if (group != NULL) train(group, "a group");
  lockstep_finalize(group);
  train(session, "all ranks after a group");
  lockstep_finalize(session);

  MPI_Send(&rank, 1, MPI_INT, rank, 2, own);
  pthread_join(thread, NULL);
  free(others);
  MPI_Comm_free(&own);
  if (even != MPI_COMM_NULL) MPI_Comm_free(&even);
  MPI_Finalize();
  if (rank == 0) printf("embedded_loop: right on %d ranks\n", size);
  return 0;
}
