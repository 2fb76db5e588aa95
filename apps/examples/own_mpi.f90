! A Fortran program with its own MPI_Init and its own loop: it fits y = w x + b in double precision,
! each rank on its own samples. The lines that name Lockstep are all that the wrapper adds.
module line
  use, intrinsic :: iso_c_binding
  implicit none
  real(c_double), target :: w(1) = 0, b(1) = 0, dw(1) = 0, db(1) = 0
contains
  ! The gradient of the mean squared error over samples `first` to `last`.
  subroutine backward(first, last)
    integer, intent(in) :: first, last
    real(c_double) :: x, error
    integer :: i
    dw = 0
    db = 0
    do i = first, last
      x = 0.01d0 * i
      error = w(1) * x + b(1) - (3 * x + 1)
      dw = dw + 2 * error * x / (last - first + 1)
      db = db + 2 * error / (last - first + 1)
    end do
  end subroutine

  function descend(state) bind(C) result(status)
    type(c_ptr), value :: state
    integer(c_int) :: status
    w = w - 0.4d0 * dw
    b = b - 0.4d0 * db
    status = merge(0, 1, .not. c_associated(state))
  end function
end module

program own_mpi
  use mpi
  use lockstep
  use line
  implicit none
  integer, parameter :: samples = 100
  type(lockstep_session_options) :: options
  type(lockstep_parameter) :: parameters(2)
  type(c_ptr) :: session, optimizer
  character(kind=c_char, len=2), target :: names(2) = ["w"//c_null_char, "b"//c_null_char]
  integer :: provided, status, rank, ranks, first, last, step

  call MPI_Init_thread(MPI_THREAD_SERIALIZED, provided, status)
  options = lockstep_default_session_options()
  options%communicator = MPI_COMM_WORLD
  call require(lockstep_init(options, session))
  rank = lockstep_rank(session)
  ranks = lockstep_world_size(session)
  parameters(1) = parameter_of(names(1), w, dw)
  parameters(2) = parameter_of(names(2), b, db)
  call require(lockstep_optimizer_create(session, parameters, 2_c_size_t, &
      update=c_funloc(descend), state=c_null_ptr, optimizer=optimizer))
  call require(lockstep_broadcast_parameters(optimizer, 0_c_int))

  first = 1 + rank * samples / ranks
  last = (rank + 1) * samples / ranks
  do step = 1, 1000
    call backward(first, last)
    call require(lockstep_backward_done(optimizer, real(last - first + 1, c_double)))
    call require(lockstep_step(optimizer))
  end do
  if (rank == 0) print "(a,f0.9,a,f0.9)", "y = ", w, " x + ", b

  call lockstep_optimizer_free(optimizer)
  call lockstep_finalize(session)
  call MPI_Finalize(status)
end program
