/* The C interface of Lockstep's wrapper: for C, and for any language that can call C functions.
 *
 *     lockstep_session* session;
 *     if (lockstep_init(NULL, &session) != LOCKSTEP_OK) return report(lockstep_last_error());
 *     lockstep_optimizer* optimizer;
 *     lockstep_optimizer_create(session, parameters, count, NULL, update, &my_sgd, &optimizer);
 *     lockstep_broadcast_parameters(optimizer, 0);
 *     for (...) {
 *       backward(batch);                                // into the gradients of `parameters`
 *       lockstep_backward_done(optimizer, batch.size);  // they are means over as many samples
 *       lockstep_step(optimizer, NULL);                 // averages them over all ranks, then calls update(&my_sgd)
 *     }
 *     lockstep_optimizer_free(optimizer);
 *     lockstep_finalize(session);
 *
 * Functions return LOCKSTEP_OK or the exit status of an error's kind; lockstep_last_error() tells it in words. All
 * ranks call the same functions in the same order, on one thread at a time. A process that cannot go on leaves with a
 * status other than 0, so that the launcher ends the others. */
#ifndef LOCKSTEP_C_API_H
#define LOCKSTEP_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What functions return. The numbers are the exit statuses of the program `lockstep`. */
enum lockstep_status {
  LOCKSTEP_OK = 0,
  LOCKSTEP_BUG = 1,           /**< an invariant is broken, or memory ran out */
  LOCKSTEP_INPUT = 2,         /**< an argument, or a call at the wrong moment */
  LOCKSTEP_DATA = 3,          /**< data or a checkpoint */
  LOCKSTEP_COMMUNICATION = 4, /**< ranks that differ, or one that was lost */
  LOCKSTEP_DEVICE = 5         /**< a device that is missing or failed */
};

/** Types of elements. */
enum lockstep_type {
  LOCKSTEP_FLOAT32 = 0,
  LOCKSTEP_FLOAT64 = 1,
  LOCKSTEP_INT32 = 2,
  LOCKSTEP_INT64 = 3,
  LOCKSTEP_FLOAT16 = 4,
  LOCKSTEP_BFLOAT16 = 5
};

/** How values of all ranks become one. */
enum lockstep_op { LOCKSTEP_SUM = 0, LOCKSTEP_MAX = 1, LOCKSTEP_MIN = 2 };

/** The process as one rank of a job. */
typedef struct lockstep_session lockstep_session;
/** An optimizer of the caller's, whose gradients are averaged over all ranks. */
typedef struct lockstep_optimizer lockstep_optimizer;

/** A parameter: where the caller keeps its values and its gradient, of `elements` floats each, which stay where they
 * are and the caller's own. */
typedef struct lockstep_parameter {
  const char* name; /**< its own among the parameters, the same on all ranks */
  float* values;    /**< `elements` of them */
  float* gradient;  /**< likewise */
  size_t elements;  /**< of both */
} lockstep_parameter;

/** Options of an optimizer; lockstep_default_options() fills in what is not set. */
typedef struct lockstep_options {
  int sum;                      /**< 0: gradients are averaged over samples; 1: added */
  int backward_passes_per_step; /**< 1 */
  int compression;         /**< LOCKSTEP_FLOAT32, LOCKSTEP_BFLOAT16 or LOCKSTEP_FLOAT16: what gradients travel as */
  size_t bucket_bytes;     /**< 26214400: gradients that are reduced in one call, at least */
  double predivide_factor; /**< 0: all of the division is done before the sum */
  double clip_norm;        /**< 0: no clipping of the averaged gradient */
} lockstep_options;

/** The version, such as "0.1.0". Static. */
const char* lockstep_version(void);
/** The last error of the calling thread, in words: "[where] what was needed; what was given". Valid until its next
 * call of a function of this file; "" before any. */
const char* lockstep_last_error(void);

/** Options of a session; lockstep_default_session_options() fills in what is not set. */
typedef struct lockstep_session_options {
  double stall_timeout;   /**< 120 seconds: a rank that others wait for as long is taken for lost, and ends the job with
                               status 4 and its name; 0 for never */
  const char* all_reduce; /**< "auto", "shared-memory", "ring", "hierarchical" or "mpi" */
  int quiet;              /**< 1: warnings and errors only */
} lockstep_session_options;

/** The defaults. */
lockstep_session_options lockstep_default_session_options(void);

/** Makes this process a rank: under a launcher initialises MPI, or joins one that runs. Once a process. NULL options
 * are the defaults. Collective. */
int lockstep_init(const lockstep_session_options* options, lockstep_session** session);
/** Tells that this rank is at work, which others have to wait for longer than the stall timeout: from a long
 * evaluation, or while it saves. NULL is allowed. */
void lockstep_still_at_work(lockstep_session* session);
/** Ends MPI, unless it was joined. Collective; optimizers are to be freed before. NULL is allowed. */
void lockstep_finalize(lockstep_session* session);

int lockstep_rank(const lockstep_session* session);       /**< 0 .. world size - 1 */
int lockstep_world_size(const lockstep_session* session); /**< ranks of the job */
int lockstep_local_rank(const lockstep_session* session); /**< among the ranks of this node */
int lockstep_local_size(const lockstep_session* session); /**< ranks of this node */
int lockstep_node(const lockstep_session* session);       /**< number of this rank's node */

/** values[i] becomes the sum (maximum, minimum) over all ranks, in place. `count` in elements of `type`. Collective. */
int lockstep_all_reduce(lockstep_session* session, void* values, size_t count, int type, int op);
/** All ranks' `bytes` bytes become those of rank `root`. Collective. */
int lockstep_broadcast(lockstep_session* session, void* values, size_t bytes, int root);
/** Every rank's `bytes` bytes, the same number on each, one after the other in `all` (world size x bytes) on each rank.
 * Collective. */
int lockstep_all_gather(lockstep_session* session, const void* values, size_t bytes, void* all);
/** Returns once every rank has called it. Collective. */
int lockstep_barrier(lockstep_session* session);
/** `*result` is 1 on all ranks if `mine` is not 0 on any: the way to stop or to save together. Collective. */
int lockstep_any(lockstep_session* session, int mine, int* result);

/** The defaults. */
lockstep_options lockstep_default_options(void);

/** `parameters` in the order of the forward pass, copied (the arrays are not). `update(state)` is called by
 * lockstep_step() once gradients are those of all ranks; other than 0, it makes that fail. NULL options are the
 * defaults. Names and sizes are compared over all ranks. Collective. */
int lockstep_optimizer_create(lockstep_session* session, const lockstep_parameter* parameters, size_t count,
                              const lockstep_options* options, int (*update)(void* state), void* state,
                              lockstep_optimizer** optimizer);
/** NULL is allowed. */
void lockstep_optimizer_free(lockstep_optimizer* optimizer);

/** All ranks' parameters become those of rank `root`. Collective, between steps. */
int lockstep_broadcast_parameters(lockstep_optimizer* optimizer, int root);
/** Before a backward pass whose gradients are announced one by one; else it may be left out. */
int lockstep_begin_backward(lockstep_optimizer* optimizer, double samples);
/** The gradient of a parameter, by its number, is complete. */
int lockstep_gradient_ready(lockstep_optimizer* optimizer, size_t parameter);
/** A backward pass over `samples` samples is done, whose gradients are means over them; 0 for a rank without any. */
int lockstep_backward_done(lockstep_optimizer* optimizer, double samples);
/** Replaces gradients by those of all ranks, for code that reads or changes them before lockstep_step(). Collective. */
int lockstep_synchronize(lockstep_optimizer* optimizer);
/** Reduces unless lockstep_synchronize() has, then calls update. `updated`, where it is not NULL, becomes 0 where no
 * rank had a sample, and 1 otherwise. Collective. */
int lockstep_step(lockstep_optimizer* optimizer, int* updated);
/** At the end of an epoch: a step from backward passes that are left over. `updated` as above. Collective. */
int lockstep_flush(lockstep_optimizer* optimizer, int* updated);
/** Norm of the last step's gradient before clipping; 0 without it. */
double lockstep_gradient_norm(const lockstep_optimizer* optimizer);

#ifdef __cplusplus
}
#endif

#endif
