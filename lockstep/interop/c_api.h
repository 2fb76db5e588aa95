/* The C interface of Lockstep's wrapper: for C, and for any language that can call C functions.
 *
 *     lockstep_session* session;
 *     if (lockstep_init(NULL, &session) != LOCKSTEP_OK) return report(lockstep_last_error());
 *     lockstep_optimizer* optimizer;
 *     lockstep_optimizer_create(session, parameters, count, NULL, update, &my_sgd, &optimizer);
 *     lockstep_broadcast_parameters(optimizer, 0);
 *     for (...) {
 *       backward(batch);                                // writes the gradients of `parameters`
 *       lockstep_backward_done(optimizer, batch.size);  // means over this many samples
 *       lockstep_step(optimizer, NULL);                 // averages them, calls update(&my_sgd)
 *     }
 *     lockstep_optimizer_free(optimizer);
 *     lockstep_finalize(session);
 *
 * Functions return LOCKSTEP_OK or the exit status for the kind of error; lockstep_last_error()
 * returns the message. All ranks call the same functions in the same order, from one thread at a
 * time.
 *
 * LOCKSTEP_INPUT leaves the session and its optimizers as they were before the call: this rank may
 * make the expected call next, for which the other ranks wait. The exceptions are
 * lockstep_optimizer_create(), which is to be called again on all ranks, and an update function
 * that fails: the next lockstep_step() calls it again. After any other error the session can only
 * be finalized. A process that cannot continue must exit with a nonzero status, so that the
 * launcher ends the others. */
#ifndef LOCKSTEP_C_API_H
#define LOCKSTEP_C_API_H

/* NOLINTBEGIN: the headers, types and names are those of C. */
#include <stddef.h>
#include <stdint.h>

#include "lockstep/base/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Return values. The numbers are the exit statuses of the program `lockstep`. */
enum lockstep_status {
  LOCKSTEP_OK = 0,
  LOCKSTEP_BUG = 1,           /**< a broken invariant, or out of memory */
  LOCKSTEP_INPUT = 2,         /**< an invalid argument, or a call out of order */
  LOCKSTEP_DATA = 3,          /**< data or a checkpoint */
  LOCKSTEP_COMMUNICATION = 4, /**< ranks differ, or a rank was lost */
  LOCKSTEP_DEVICE = 5         /**< a device is missing or has failed */
};

/** Element types. */
enum lockstep_type {
  LOCKSTEP_FLOAT32 = 0,
  LOCKSTEP_FLOAT64 = 1,
  LOCKSTEP_INT32 = 2,
  LOCKSTEP_INT64 = 3,
  LOCKSTEP_FLOAT16 = 4,
  LOCKSTEP_BFLOAT16 = 5,
  LOCKSTEP_UINT8 = 6
};

/** Reduction operations. */
enum lockstep_op {
  LOCKSTEP_SUM = 0,
  LOCKSTEP_MAX = 1,
  LOCKSTEP_MIN = 2,
  LOCKSTEP_PRODUCT = 3,
  LOCKSTEP_AVERAGE = 4 /**< of floating-point numbers */
};

/** This process as one rank of a job, or of a group of its ranks. */
typedef struct lockstep_session lockstep_session;
/** A collective that was started and is to be completed by lockstep_wait(). */
typedef struct lockstep_request lockstep_request;
/** A wrapper of the caller's optimizer that averages gradients over all ranks. */
typedef struct lockstep_optimizer lockstep_optimizer;

/** A parameter: its values and its gradient, of `elements` numbers each. The caller owns the arrays
 * and does not move them. */
typedef struct lockstep_parameter {
  const char* name; /**< unique among the parameters, the same on all ranks */
  void* values;     /**< `elements` numbers */
  void* gradient;   /**< `elements` numbers */
  size_t elements;  /**< number of elements of each array */
  int type;         /**< of both arrays: LOCKSTEP_FLOAT32 or LOCKSTEP_FLOAT64 */
} lockstep_parameter;

/** Options of an optimizer. Start from lockstep_default_options(). */
typedef struct lockstep_options {
  size_t size; /**< sizeof(lockstep_options) of the caller: a later version has more options, and
                  uses their defaults for a caller that does not know them */
  int sum;     /**< 0: average gradients over samples; 1: sum them */
  int backward_passes_per_step; /**< default 1 */
  int compression;              /**< type for communication: LOCKSTEP_FLOAT32, LOCKSTEP_BFLOAT16 or
                                   LOCKSTEP_FLOAT16 */
  size_t bucket_bytes; /**< default 26214400: minimum size of the gradients that one call reduces */
  double predivide_factor; /**< 0: divide before the sum only */
  double clip_norm;        /**< largest norm of the reduced gradient; 0: no clipping */
  int skip_non_finite;     /**< 1: lockstep_step() skips a step whose reduced gradient has NaN or
                              infinity, on all ranks; default 0 */
  int sum_passes;          /**< 1: the passes of a step are summed, not averaged; default 0 */
} lockstep_options;

/** The version, such as "0.1.0". Static. */
const char* lockstep_version(void);
/** Message of the calling thread's last error: "[where] expected …, got …"; "" if there was none.
 * Valid until the thread next calls a function of this file. */
const char* lockstep_last_error(void);

/** Options of a session. Start from lockstep_default_session_options(). */
typedef struct lockstep_session_options {
  size_t size;          /**< sizeof(lockstep_session_options) of the caller, see lockstep_options */
  double stall_timeout; /**< seconds, default 120: when other ranks have waited this long for a
                           rank, a warning names it if it computes, reads or writes; otherwise
                           the job ends with status 4 and an error that names it; 0: never.
                           LOCKSTEP_STALL_TIMEOUT in the environment overrides it */
  const char* all_reduce; /**< a route between ranks, as for lockstep train --allreduce; default
                             "auto" */
  int quiet;              /**< 1: warnings and errors only */
  double start_timeout;   /**< seconds that lockstep_init() may wait for other ranks before the
                             process ends with status 4; 0: no limit; default -1: 60, or
                             stall_timeout if that is shorter */
  int communicator;       /**< the communicator of the ranks that call lockstep_init(), as
                             returned by MPI_Comm_c2f() (in Fortran: the communicator itself;
                             lockstep/mpi.h converts it in C); default -1: MPI_COMM_WORLD */
  /* A job that the program describes, over TCP. There may be several such sessions at a time,
   * beside another; when ranks are lost, their calls return LOCKSTEP_COMMUNICATION, and the process
   * goes on. */
  int world_size;      /**< number of ranks; default 0: the launcher describes the job */
  int rank;            /**< of this process */
  const char* address; /**< "host:port" where rank 0 listens */
  int listener;        /**< of rank 0: a socket that listens there, which the session closes;
                          default -1: the session listens */
  const char* secret;  /**< of the job, at least 16 bytes, the same on all ranks; default NULL: the
                          ranks are of one user on one host */
} lockstep_session_options;

/** The defaults. */
lockstep_session_options lockstep_default_session_options(void);

/** Makes this process a rank. Initializes MPI under a launcher, or uses MPI if it is already
 * initialized. One session per process, beside those of jobs that the program describes
 * (lockstep_session_options::world_size): a second call before lockstep_finalize() is
 * LOCKSTEP_INPUT. An error leaves `*session` unchanged. After lockstep_finalize(), another session
 * is possible only if the program initialized MPI, or MPI is not used. NULL options are the
 * defaults. Collective. */
int lockstep_init(const lockstep_session_options* options, lockstep_session** session);
/** Reports that this rank is still working, so that no warning names it. Call it while other ranks
 * wait for this one for longer than the stall timeout, such as in a long evaluation; without it a
 * rank that waits for something and neither computes, reads nor writes ends the job. NULL is
 * allowed. */
void lockstep_still_at_work(lockstep_session* session);
/** Ends all calls that are in progress in this session, with LOCKSTEP_COMMUNICATION, here and on
 * the other ranks, from any thread. Nothing but lockstep_finalize() is useful after it. NULL is
 * allowed. */
void lockstep_abort(lockstep_session* session);
/** Finalizes MPI if lockstep_init() initialized it. Free all optimizers first. Collective. NULL is
 * allowed. A rank that exits without this call counts as failed: mpirun ends the job and reports
 * an error. */
void lockstep_finalize(lockstep_session* session);

/* These functions return -1 for NULL. */
int lockstep_rank(const lockstep_session* session);       /**< 0 .. world size - 1 */
int lockstep_world_size(const lockstep_session* session); /**< number of ranks */
int lockstep_local_rank(const lockstep_session* session); /**< rank within this node */
int lockstep_local_size(const lockstep_session* session); /**< number of ranks on this node */
int lockstep_node(const lockstep_session* session);       /**< index of this rank's node */

/** Makes a group of the ranks `ranks` of `session`, numbered in this order, which is used like a
 * session: for collectives, for optimizers, and for groups of its own. Sets `*group` to NULL on the
 * other ranks of `session`, all of which make this call with the same ranks. Place on the node and
 * watchdog are those of the session. lockstep_finalize() of the group comes before that of
 * `session`. */
int lockstep_group_create(lockstep_session* session, const int* ranks, size_t count,
                          lockstep_session** group);

/** Replaces values[i] with the sum (maximum, minimum, product, average) over all ranks. `count` is
 * in elements of `type`. Collective. */
int lockstep_all_reduce(lockstep_session* session, void* values, size_t count, int type, int op);
/** Copies the `bytes` bytes of rank `root` to all ranks. Collective. */
int lockstep_broadcast(lockstep_session* session, void* values, size_t bytes, int root);
/** Concatenates the `bytes` bytes of every rank in `all` (world size x bytes), on every rank.
 * `bytes` is the same on all ranks. Collective. */
int lockstep_all_gather(lockstep_session* session, const void* values, size_t bytes, void* all);
/** Concatenates the `bytes` bytes of every rank, whose numbers may differ, in `all`, of `capacity`
 * bytes, and sets sizes[i] (world size of them) to the number of rank i. If `capacity` is too small
 * on any rank, the call is LOCKSTEP_INPUT on all of them: `sizes` is set, and `all` is unchanged.
 * Collective. */
int lockstep_all_gather_unequal(lockstep_session* session, const void* values, size_t bytes,
                                void* all, size_t capacity, size_t* sizes);
/** Sends bytes[i] bytes to rank i, which follow each other in `values`, and concatenates what all
 * ranks send to this one in `all`, of `capacity` bytes; sets sizes[i] to the number from rank i. If
 * `capacity` is too small on any rank, as in lockstep_all_gather_unequal(). Collective. */
int lockstep_all_to_all(lockstep_session* session, const void* values, const size_t* bytes,
                        void* all, size_t capacity, size_t* sizes);
/** Replaces this rank's part of `values`, elements [*begin, *end), with the sum (or another
 * operation) over all ranks; the other elements are undefined afterwards. The parts of the ranks
 * are whole cache lines, or empty, and together all elements. Collective. */
int lockstep_reduce_scatter(lockstep_session* session, void* values, size_t count, int type, int op,
                            size_t* begin, size_t* end);
/* Collectives in the background. Each returns when it is started, sets `*request`, and runs after
 * those that were started before; all ranks start the same ones in the same order. The caller's
 * memory, `begin` and `end` excepted, must stay valid and unused until the request is complete.
 * NULL for `request`: the call is complete on return, as without _start. */

/** As lockstep_all_reduce(), with factors: values[i] is multiplied by `before` on each rank,
 * reduced, and multiplied by `after`. Factors other than 1 require floating-point numbers. */
int lockstep_all_reduce_start(lockstep_session* session, void* values, size_t count, int type,
                              int op, double before, double after, lockstep_request** request);
/** Reduces `number` arrays of counts[i] elements as one: arrays[i] as `values` there. `arrays` and
 * `counts` are read at once. For many small arrays. */
int lockstep_grouped_all_reduce_start(lockstep_session* session, void* const* arrays,
                                      const size_t* counts, size_t number, int type, int op,
                                      double before, double after, lockstep_request** request);
/** See lockstep_broadcast(). */
int lockstep_broadcast_start(lockstep_session* session, void* values, size_t bytes, int root,
                             lockstep_request** request);
/** See lockstep_all_gather_unequal(). */
int lockstep_all_gather_unequal_start(lockstep_session* session, const void* values, size_t bytes,
                                      void* all, size_t capacity, size_t* sizes,
                                      lockstep_request** request);
/** See lockstep_all_to_all(). `bytes` is read at once. */
int lockstep_all_to_all_start(lockstep_session* session, const void* values, const size_t* bytes,
                              void* all, size_t capacity, size_t* sizes,
                              lockstep_request** request);
/** See lockstep_reduce_scatter(). */
int lockstep_reduce_scatter_start(lockstep_session* session, void* values, size_t count, int type,
                                  int op, size_t* begin, size_t* end, lockstep_request** request);
/* Messages between two ranks, in sessions of a job that the program describes
 * (lockstep_session_options::world_size), beside collectives and from any thread. Those from one
 * rank with one tag are received in the order in which they were sent. */

/** Sends `bytes` bytes to rank `to`. */
int lockstep_send_start(lockstep_session* session, const void* values, size_t bytes, int to,
                        int tag, lockstep_request** request);
/** Receives a message of rank `from`, or of any rank for -1, of at most `bytes` bytes, and sets
 * `*source`, unless it is NULL, to who sent it when the request is complete. LOCKSTEP_COMMUNICATION
 * for a longer message. */
int lockstep_receive_start(lockstep_session* session, void* values, size_t bytes, int from, int tag,
                           int* source, lockstep_request** request);

/** Returns when the collective is complete, with its status, and ends `request`. */
int lockstep_wait(lockstep_request* request);
/** Sets `*done` to 1 if the collective is complete, else to 0. lockstep_wait() must still be
 * called. Returns the status of a collective that failed. */
int lockstep_test(lockstep_request* request, int* done);

/** Returns once every rank has called it. Collective. */
int lockstep_barrier(lockstep_session* session);
/** Sets `*result` to 1 on all ranks if `mine` is nonzero on any, for example to stop or save
 * together. Collective. */
int lockstep_any(lockstep_session* session, int mine, int* result);

/** The defaults. */
lockstep_options lockstep_default_options(void);

/** `parameters` are in the order of the forward pass. They are copied; the arrays they point to are
 * not. lockstep_step() calls `update(state)` after it has reduced the gradients, and fails if that
 * returns nonzero. NULL options are the defaults. Names and sizes are compared across ranks.
 * Collective. */
int lockstep_optimizer_create(lockstep_session* session, const lockstep_parameter* parameters,
                              size_t count, const lockstep_options* options,
                              int (*update)(void* state), void* state,
                              lockstep_optimizer** optimizer);
/** NULL is allowed. */
void lockstep_optimizer_free(lockstep_optimizer* optimizer);

/** Copies the parameters of rank `root` to all ranks. Collective, between steps. */
int lockstep_broadcast_parameters(lockstep_optimizer* optimizer, int root);
/** Copies what the caller's optimizer keeps, such as momentum, from rank `root` to all ranks. Only
 * names, values, elements and types of `state` are used, and compared across ranks. Collective,
 * between steps. */
int lockstep_broadcast_optimizer_state(lockstep_optimizer* optimizer,
                                       const lockstep_parameter* state, size_t count, int root);
/** Call before a backward pass whose gradients are reported by lockstep_gradient_ready(); optional
 * otherwise. */
int lockstep_begin_backward(lockstep_optimizer* optimizer, double samples);
/** Reports that the gradient of parameter number `parameter` is complete. */
int lockstep_gradient_ready(lockstep_optimizer* optimizer, size_t parameter);
/** Ends a backward pass. Gradients are means over `samples` samples; 0 for a rank without samples.
 */
int lockstep_backward_done(lockstep_optimizer* optimizer, double samples);
/** Reduces the gradients in place, for code that reads or changes them before lockstep_step().
 * Collective. */
int lockstep_synchronize(lockstep_optimizer* optimizer);
/** Reduces the gradients unless lockstep_synchronize() has done so, then calls the update function.
 * LOCKSTEP_INPUT if a gradient was changed after it was reported; the next call then uses the
 * gradients as reported. Sets `*updated`, unless it is NULL, to 0 if no rank had a sample or the
 * step was skipped (lockstep_options::skip_non_finite), else to 1. Collective. */
int lockstep_step(lockstep_optimizer* optimizer, int* updated);
/** Makes a step of the remaining backward passes at the end of an epoch. `updated` as above.
 * Collective. */
int lockstep_flush(lockstep_optimizer* optimizer, int* updated);
/** Ends the step after lockstep_synchronize() without a call of the update function: the reduced
 * gradients are not used. They are the same on all ranks, so all ranks make the same decision. */
int lockstep_discard(lockstep_optimizer* optimizer);
/** Makes the steps of the other ranks, without samples of this one, until all ranks have called
 * lockstep_join(): for loaders of different lengths. Each rank calls it when its data end;
 * meanwhile the others make no collective calls except those of their steps. Sets `*steps`, unless
 * it is NULL, to the number of steps that this rank made without samples. Collective. */
int lockstep_join(lockstep_optimizer* optimizer, int* steps);
/** Norm of the last step's gradient before clipping; 0 without clip_norm and skip_non_finite. */
double lockstep_gradient_norm(const lockstep_optimizer* optimizer);
/** 1 if any rank had a gradient of parameter number `parameter` in the last step, else 0: such a
 * parameter has a gradient of zeros, and optimizers with momentum leave it as it is. */
int lockstep_has_gradient(const lockstep_optimizer* optimizer, size_t parameter);

/** Runs `loop(session, state)` on each rank alone, with a session of one rank, then once on all
 * ranks together, and compares the reduced gradients of its first ten steps. The loop makes its
 * optimizers with the session that it is given, and all that it changes, so that it starts from the
 * same state; it returns 0. LOCKSTEP_INPUT if gradients differ: lockstep_last_error() names the
 * step, the parameter and the likely cause. See interop/equivalence.h. Collective. */
int lockstep_verify_equivalence(lockstep_session* session,
                                int (*loop)(lockstep_session* session, void* state), void* state);

#ifdef __cplusplus
}
#endif
/* NOLINTEND */

#endif
