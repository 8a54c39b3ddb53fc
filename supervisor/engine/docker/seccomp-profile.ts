import { createHash } from 'node:crypto';

/**
 * What programs of a container without capabilities may ask of the kernel: its system calls without those that need a
 * capability, concern the machine as a whole, or are known for their faults. Those that an architecture or a kernel lacks
 * are ignored there.
 */
const ALLOWED = `
  _llseek _newselect accept accept4 access alarm arch_prctl arm_fadvise64_64 arm_sync_file_range bind breakpoint
  brk cacheflush cachestat capget capset chdir chmod chown chown32 clock_getres clock_getres_time64 clock_gettime
  clock_gettime64 clock_nanosleep clock_nanosleep_time64 close close_range connect copy_file_range creat dup dup2
  dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
  eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fchdir
  fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fork
  fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync ftruncate ftruncate64 futex futex_requeue
  futex_time64 futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd getdents
  getdents64 getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername
  getpgid getpgrp getpid getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit
  getrusage getsid getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat
  inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
  io_pgetevents_time64 io_setup io_submit ioctl ioprio_get ioprio_set ipc kill landlock_add_rule
  landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link linkat listen listxattr
  listxattrat llistxattr lremovexattr lseek lsetxattr lstat lstat64 madvise map_shadow_stack membarrier
  memfd_create memfd_secret mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 modify_ldt
  mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64
  mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep newfstatat open
  openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll
  ppoll_time64 prctl pread64 preadv preadv2 prlimit64 process_mrelease process_vm_readv process_vm_writev pselect6
  pselect6_time64 ptrace pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recv recvfrom recvmmsg
  recvmmsg_time64 recvmsg remap_file_pages removexattr removexattrat rename renameat renameat2 restart_syscall
  riscv_flush_icache rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
  rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max
  sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
  sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
  seccomp select semctl semget semop semtimedop semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto
  set_robust_list set_thread_area set_tid_address set_tls setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32
  setgroups setgroups32 setitimer setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid
  setresuid32 setreuid setreuid32 setrlimit setsid setsockopt setuid setuid32 setxattr setxattrat shmat shmctl
  shmdt shmget shutdown sigaltstack signalfd signalfd4 sigprocmask sigreturn splice stat stat64 statfs statfs64
  statx symlink symlinkat sync sync_file_range sync_file_range2 syncfs sysinfo tee tgkill time timer_create
  timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create
  timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64 ugetrlimit
  umask uname unlink unlinkat utime utimensat utimensat_time64 utimes vfork vmsplice wait4 waitid waitpid write
  writev
`
  .trim()
  .split(/\s+/);

/** Answered as by a kernel that does not have them, so that programs do without. */
const ABSENT = [
  // Its flags are in memory, where no filter can see them; `clone` is tried next.
  'clone3',
  // It opens sockets of any family, past every filter.
  'io_uring_enter',
  'io_uring_register',
  'io_uring_setup',
  // The way to sockets of old 32-bit programs. The rule for each call that it stands for would become a rule for it too, which
  // sees which call that is, and not the arguments in memory: the family would be free. This rule is for all of them.
  'socketcall',
];

/**
 * Address families whose sockets stay within the network namespace and have no use beyond it: Unix, IPv4, IPv6, netlink.
 * Not AF_VSOCK (40), which leads to a hypervisor whatever the namespace, and none of the many that nobody needs.
 */
const FAMILIES = [1, 2, 10, 16];
const UNIX = 1;
/** Execution domains: Linux, 32-bit Linux, both with the old name of the kernel, and the question for the current one. */
const PERSONALITIES = [0, 8, 0x20000, 0x20008, 0xffffffff];
/** The flags of `clone` for new namespaces. */
const NAMESPACE_FLAGS = 0x7e020000;
const ENOSYS = 38;
const EPERM = 1;

/**
 * A script that fails where this profile is not in force. Its `adjtimex` reads the state of the clock, which this profile
 * withholds, and neither the kernel nor the default profile of an engine does.
 */
export const SECCOMP_TRIAL = `grep -q '^Seccomp:[[:space:]]*2$' /proc/self/status && ! busybox adjtimex >/dev/null 2>&1`;

/** An argument must be equal in all 64 bits: the kernel looks at fewer, but more are never set by honest programs. */
function only(name: string, values: readonly number[]): object[] {
  return values.map((value) => ({
    names: [name],
    action: 'SCMP_ACT_ALLOW',
    args: [{ index: 0, value, op: 'SCMP_CMP_EQ' }],
  }));
}

/** The profile as the engine takes it, JSON. Everything that is not allowed fails with EPERM. */
export const SECCOMP_PROFILE = JSON.stringify({
  defaultAction: 'SCMP_ACT_ERRNO',
  defaultErrnoRet: EPERM,
  archMap: [
    // Not x32, whose numbers most filters forget.
    { architecture: 'SCMP_ARCH_X86_64', subArchitectures: ['SCMP_ARCH_X86'] },
    { architecture: 'SCMP_ARCH_AARCH64', subArchitectures: ['SCMP_ARCH_ARM'] },
  ],
  syscalls: [
    { names: ALLOWED, action: 'SCMP_ACT_ALLOW' },
    { names: ABSENT, action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
    ...only('socket', FAMILIES),
    ...only('socketpair', [UNIX]),
    ...only('personality', PERSONALITIES),
    {
      names: ['clone'],
      action: 'SCMP_ACT_ALLOW',
      args: [{ index: 0, value: NAMESPACE_FLAGS, valueTwo: 0, op: 'SCMP_CMP_MASKED_EQ' }],
    },
  ],
});

/** Changes with the profile. */
export const SECCOMP_VERSION = createHash('sha256').update(SECCOMP_PROFILE).digest('hex').slice(0, 12);
