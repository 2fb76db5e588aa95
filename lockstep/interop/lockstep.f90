! The C interface of Lockstep (c_api.h, which documents each function) for Fortran 2003: compile this
! file with your program, and link lockstep::core.
!
!     use lockstep
!     type(lockstep_parameter) :: parameters(1)
!     type(c_ptr) :: session, optimizer
!     call require(lockstep_init(session=session))
!     parameters(1) = parameter_of("w"//c_null_char, w, dw)        ! w and dw are targets
!     call require(lockstep_optimizer_create(session, parameters, 1_c_size_t, &
!         update=c_funloc(descend), state=c_null_ptr, optimizer=optimizer))
!     do step = 1, steps
!       call backward()                                            ! writes dw
!       call require(lockstep_backward_done(optimizer, samples))
!       call require(lockstep_step(optimizer))
!     end do
!     call lockstep_optimizer_free(optimizer)
!     call lockstep_finalize(session)
module lockstep
  use, intrinsic :: iso_c_binding
  implicit none
  public

  enum, bind(C)
    enumerator :: LOCKSTEP_OK = 0, LOCKSTEP_BUG, LOCKSTEP_INPUT, LOCKSTEP_DATA, &
        LOCKSTEP_COMMUNICATION, LOCKSTEP_DEVICE
  end enum
  enum, bind(C)
    enumerator :: LOCKSTEP_FLOAT32 = 0, LOCKSTEP_FLOAT64, LOCKSTEP_INT32, LOCKSTEP_INT64, &
        LOCKSTEP_FLOAT16, LOCKSTEP_BFLOAT16, LOCKSTEP_UINT8
  end enum
  enum, bind(C)
    enumerator :: LOCKSTEP_SUM = 0, LOCKSTEP_MAX, LOCKSTEP_MIN, LOCKSTEP_PRODUCT, LOCKSTEP_AVERAGE
  end enum

  type, bind(C) :: lockstep_parameter
    type(c_ptr) :: name = c_null_ptr
    type(c_ptr) :: values = c_null_ptr
    type(c_ptr) :: gradient = c_null_ptr
    integer(c_size_t) :: elements = 0
    integer(c_int) :: type = LOCKSTEP_FLOAT32
  end type

  type, bind(C) :: lockstep_options
    integer(c_size_t) :: size
    integer(c_int) :: sum
    integer(c_int) :: backward_passes_per_step
    integer(c_int) :: compression
    integer(c_size_t) :: bucket_bytes
    real(c_double) :: predivide_factor
    real(c_double) :: clip_norm
    integer(c_int) :: skip_non_finite
    integer(c_int) :: sum_passes
  end type

  type, bind(C) :: lockstep_session_options
    integer(c_size_t) :: size
    real(c_double) :: stall_timeout
    type(c_ptr) :: all_reduce
    integer(c_int) :: quiet
    real(c_double) :: start_timeout
    integer(c_int) :: communicator  ! a communicator of the module mpi, or -1
    integer(c_int) :: world_size
    integer(c_int) :: rank
    type(c_ptr) :: address
    integer(c_int) :: listener
    type(c_ptr) :: secret
  end type

  ! A parameter of float or double: its values and its gradient, which must be targets, as the name,
  ! which ends with c_null_char.
  interface parameter_of
    module procedure parameter_of_float, parameter_of_double
  end interface

  interface
    function lockstep_default_options() bind(C)
      import :: lockstep_options
      type(lockstep_options) :: lockstep_default_options
    end function
    function lockstep_default_session_options() bind(C)
      import :: lockstep_session_options
      type(lockstep_session_options) :: lockstep_default_session_options
    end function
    function lockstep_init(options, session) bind(C)
      import :: c_int, c_ptr, lockstep_session_options
      type(lockstep_session_options), intent(in), optional :: options
      type(c_ptr), intent(inout) :: session
      integer(c_int) :: lockstep_init
    end function
    subroutine lockstep_still_at_work(session) bind(C)
      import :: c_ptr
      type(c_ptr), value :: session
    end subroutine
    subroutine lockstep_finalize(session) bind(C)
      import :: c_ptr
      type(c_ptr), value :: session
    end subroutine
    function lockstep_rank(session) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
      integer(c_int) :: lockstep_rank
    end function
    function lockstep_world_size(session) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
      integer(c_int) :: lockstep_world_size
    end function
    function lockstep_local_rank(session) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
      integer(c_int) :: lockstep_local_rank
    end function
    function lockstep_group_create(session, ranks, count, group) bind(C)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: session
      integer(c_int), intent(in) :: ranks(*)
      integer(c_size_t), value :: count
      type(c_ptr), intent(inout) :: group
      integer(c_int) :: lockstep_group_create
    end function
    function lockstep_verify_equivalence(session, loop, state) bind(C)
      import :: c_funptr, c_int, c_ptr
      type(c_ptr), value :: session, state
      type(c_funptr), value :: loop  ! integer(c_int) function loop(session, state) bind(C)
      integer(c_int) :: lockstep_verify_equivalence
    end function
    function lockstep_all_reduce(session, values, count, type, op) bind(C)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: session, values
      integer(c_size_t), value :: count
      integer(c_int), value :: type, op
      integer(c_int) :: lockstep_all_reduce
    end function
    function lockstep_broadcast(session, values, bytes, root) bind(C)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: session, values
      integer(c_size_t), value :: bytes
      integer(c_int), value :: root
      integer(c_int) :: lockstep_broadcast
    end function
    function lockstep_all_gather(session, values, bytes, all) bind(C)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: session, values, all
      integer(c_size_t), value :: bytes
      integer(c_int) :: lockstep_all_gather
    end function
    function lockstep_barrier(session) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
      integer(c_int) :: lockstep_barrier
    end function
    function lockstep_any(session, mine, result) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: session
      integer(c_int), value :: mine
      integer(c_int), intent(out) :: result
      integer(c_int) :: lockstep_any
    end function
    function lockstep_optimizer_create(session, parameters, count, options, update, state, &
        optimizer) bind(C)
      import :: c_funptr, c_int, c_ptr, c_size_t, lockstep_options, lockstep_parameter
      type(c_ptr), value :: session, state
      type(lockstep_parameter), intent(in) :: parameters(*)
      integer(c_size_t), value :: count
      type(lockstep_options), intent(in), optional :: options
      type(c_funptr), value :: update  ! integer(c_int) function update(state) bind(C)
      type(c_ptr), intent(inout) :: optimizer
      integer(c_int) :: lockstep_optimizer_create
    end function
    subroutine lockstep_optimizer_free(optimizer) bind(C)
      import :: c_ptr
      type(c_ptr), value :: optimizer
    end subroutine
    function lockstep_broadcast_parameters(optimizer, root) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: optimizer
      integer(c_int), value :: root
      integer(c_int) :: lockstep_broadcast_parameters
    end function
    function lockstep_backward_done(optimizer, samples) bind(C)
      import :: c_double, c_int, c_ptr
      type(c_ptr), value :: optimizer
      real(c_double), value :: samples
      integer(c_int) :: lockstep_backward_done
    end function
    function lockstep_synchronize(optimizer) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: optimizer
      integer(c_int) :: lockstep_synchronize
    end function
    function lockstep_step(optimizer, updated) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: optimizer
      integer(c_int), intent(out), optional :: updated
      integer(c_int) :: lockstep_step
    end function
    function lockstep_flush(optimizer, updated) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: optimizer
      integer(c_int), intent(out), optional :: updated
      integer(c_int) :: lockstep_flush
    end function
    function lockstep_discard(optimizer) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: optimizer
      integer(c_int) :: lockstep_discard
    end function
    function lockstep_join(optimizer, steps) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: optimizer
      integer(c_int), intent(out), optional :: steps
      integer(c_int) :: lockstep_join
    end function
    function lockstep_gradient_norm(optimizer) bind(C)
      import :: c_double, c_ptr
      type(c_ptr), value :: optimizer
      real(c_double) :: lockstep_gradient_norm
    end function
    function last_error_of_lockstep() bind(C, name="lockstep_last_error")
      import :: c_ptr
      type(c_ptr) :: last_error_of_lockstep
    end function
  end interface

  private :: parameter_of_float, parameter_of_double

contains

  ! The message of the last error: "[where] expected …, got …".
  function lockstep_error() result(message)
    character(:), allocatable :: message
    character(kind=c_char), pointer :: text(:)
    integer :: i
    call c_f_pointer(last_error_of_lockstep(), text, [65536])
    message = ""
    do i = 1, size(text)
      if (text(i) == c_null_char) exit
      message = message//text(i)
    end do
  end function

  ! Prints the message of an error and ends the process, so that the launcher ends the others.
  subroutine require(status)
    integer(c_int), intent(in) :: status
    if (status == LOCKSTEP_OK) return
    print "(a)", "lockstep: error: "//lockstep_error()
    stop 1
  end subroutine

  function parameter_of_float(name, values, gradient) result(parameter)
    character(kind=c_char, len=*), intent(in), target :: name
    real(c_float), intent(in), target, contiguous :: values(:), gradient(:)
    type(lockstep_parameter) :: parameter
    parameter = lockstep_parameter(c_loc(name), c_loc(values), c_loc(gradient), &
        size(values, kind=c_size_t), LOCKSTEP_FLOAT32)
  end function

  function parameter_of_double(name, values, gradient) result(parameter)
    character(kind=c_char, len=*), intent(in), target :: name
    real(c_double), intent(in), target, contiguous :: values(:), gradient(:)
    type(lockstep_parameter) :: parameter
    parameter = lockstep_parameter(c_loc(name), c_loc(values), c_loc(gradient), &
        size(values, kind=c_size_t), LOCKSTEP_FLOAT64)
  end function

end module
