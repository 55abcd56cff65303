/* CPU time by context. On each CPU one context runs at a time; every event charges the time since the
 * last one to the context that was running, so nothing is lost and nothing counted twice. exact.rs
 * reads the cells. */
#include "core.h"
#include "exact.layout.h"

#define SOFTIRQ SOFTIRQ_HI

/* Set before loading: filters known to the verifier cost nothing where they are off. */
const volatile struct {
	u32 own[OWN_PIDS]; /* process ids of the trial, as the first PID namespace numbers them; 0 ends */
	u32 follows; /* whether those of `followed` and all that descend from them are, too */
	u32 owns; /* whether softirq time has owners, and which (owner.h) */
	u32 cpus; /* CPUs that there can be */
	u32 rows; /* of `owned`, of each CPU */
	u64 pace_kick; /* where tcp_pace_kick is, or 0 */
	u64 probes; /* 1 if tcp_probe names the sockets of packets, in place of programs of cgroups */
	u64 hosts; /* 1 if the holders are the processes of a trial's hosts, which readers enter into `followed` with their rows */
	u64 tick; /* where the function of the regular tick's timer is, or 0 */
	/* Where these functions are, or 0: owner_senders.h. */
	u64 write_timer, delack_timer, keepalive_timer, syn_ack_timer, tsq_work, ack_kick;
} targ = {};

/* Process ids, or thread ids with OF_THREADS. The map is left out if no process is followed. */
#define BPF_MAP_TYPE_HASH 1
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u32);
} followed SEC(".maps");

/* The sequence and whether the cell is open, in one load. */
typedef u64 __attribute__((may_alias)) both;
#define ODD 1ULL
#define OPEN (1ULL << 32)

struct Transit {
	u64 skb, ns;
};

/* One variable, so that the cells are where exact.rs looks for them. */
struct {
	struct Cell cells[MAX_CPUS];
	struct Changes task_changes; /* of `followed` */
	struct Seen seen;
	struct Changes socket_changes; /* of `owned_socket` */
	struct Transit transits[MAX_CPUS][TRANSITS];
} all = {};

#include "owner.h"
#include "recent.h"
#include "holder.h"

/* The cell of this CPU. Null where this CPU is not counted, or where a hard interrupt hit one of our own
 * programs: it then belongs to what it interrupted, entry and exit alike, since both find the sequence odd. */
static inline struct Cell *mine(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct Cell *cell;

	if (cpu >= MAX_CPUS)
		return 0;
	cell = &all.cells[cpu];
	return (*(both *)&cell->sequence & (ODD | OPEN)) == OPEN ? cell : 0;
}

static inline void begin(struct Cell *cell)
{
	cell->sequence++;
	barrier();
}

/* Charges the time until now; the cell has begun. */
static inline void tick(struct Cell *cell)
{
	u64 now = bpf_ktime_get_ns(), last = cell->last_ns;
	u32 context = running(cell);

	cell->last_ns = now;
	if (!last || now <= last)
		return;
	cell->totals[context] += now - last;
	if (targ.owns)
		hold(cell, context, now - last);
	if (TASKS_HAVE_HOLDERS && cell->holder && (context == OTHERS || context == OWN))
		own(cell->holder, HARDIRQ + TASK_NS, now - last);
}

/* Begins, and charges the time until now. */
static inline void charge(struct Cell *cell)
{
	begin(cell);
	tick(cell);
}

static inline void end(struct Cell *cell)
{
	barrier();
	cell->sequence++;
}

/* Nothing of ours but the soaker's spinners and the wire runs at these policies. */
static inline u64 own_class(u32 policy)
{
	switch (policy) {
	case SCHED_IDLE: return SOAKER;
	case SCHED_BATCH: return WIRE;
	default: return OWN;
	}
}

static inline u64 class_of_kthread(enum kthread kind)
{
	switch (kind) {
	case KSOFTIRQD_THREAD: return KSOFTIRQD;
	case KWORKER_THREAD: return KWORKER;
	case NAPI_THREAD: return NAPI;
	default: return OTHERS;
	}
}

static inline int is_own(struct Cell *cell, u32 tgid)
{
#pragma unroll
	for (int i = 0; i < OWN_PIDS; i++) {
		if (!targ.own[i])
			break;
		if (targ.own[i] == tgid)
			return 1;
	}
	return targ.follows && (!TASKS_HAVE_HOLDERS || targ.hosts) && followed_as(cell, tgid);
}

static inline u64 class_of(struct Cell *cell, struct task_struct *task)
{
	if (!task->pid)
		return IDLE;
	if (task->flags & PF_KTHREAD)
		return class_of_kthread(kthread_of(task));
	return is_own(cell, task->tgid) ? own_class(task->policy) : OTHERS;
}

/* Of the task that runs: see running_thread. */
static inline u64 class_of_running(struct Cell *cell)
{
	struct task_struct *task;
	enum kthread kind;
	u32 policy = 0;
	u64 ids;

	if (HAS_HELPER(get_current_task_btf))
		return class_of(cell, bpf_get_current_task_btf());
	ids = bpf_get_current_pid_tgid();
	if (!ids)
		return IDLE;
	kind = running_thread();
	if (kind != USER_THREAD)
		return class_of_kthread(kind);
	task = (void *)bpf_get_current_task();
	bpf_probe_read_kernel(&policy, sizeof(policy), &task->policy);
	return is_own(cell, ids >> 32) ? own_class(policy) : OTHERS;
}

/* On the first event after a pause: what has run since is the task, or what now ends in it. */
static __attribute__((noinline)) void learn(struct Cell *cell, u64 context)
{
	u64 class = class_of_running(cell);

	cell->contexts = context ? class << 8 | context : class;
	if (TASKS_HAVE_HOLDERS) {
		struct task_struct *task = bpf_get_current_task_btf();

		run_holder(cell, task, holder_of(cell, task));
	}
}

static inline void know(struct Cell *cell, u64 context)
{
	if (!cell->contexts)
		learn(cell, context);
}

static inline int enter(u64 context)
{
	struct Cell *cell = mine();
	u64 last;

	if (!cell)
		return 0;
	know(cell, 0);
	last = cell->last_ns;
	charge(cell);
	cell->contexts = cell->contexts << 8 | context;
	if (context == SOFTIRQ_NET_RX)
		cell->totals[NET_RX_RUNS]++;
	if (targ.owns && context != HARDIRQ)
		begin_softirq(cell, context, cell->last_ns - last);
	end(cell);
	return 0;
}

/* `event`: the place where this hard interrupt is counted, or 0. */
static inline int leave(u64 context, u32 event)
{
	struct Cell *cell = mine();
	u64 last;

	if (!cell)
		return 0;
	know(cell, context);
	last = cell->last_ns;
	charge(cell);
	if (event)
		cell->totals[event & (CONTEXTS - 1)]++;
	if (targ.owns && context == HARDIRQ) {
		cell->hard_ns = cell->last_ns - last;
		cell->interrupt = event;
	}
	if (targ.owns && context != HARDIRQ)
		end_softirq(cell);
	/* An exit whose entry was before we were loaded has nothing to go back to. */
	if (cell->contexts >> 8)
		cell->contexts >>= 8;
	/* Kernels of some providers run no programs while a task of theirs is current, so a switch away from it is
	 * not seen: the next interrupt, a timer's at the latest, looks whose task runs. */
	if (context == HARDIRQ && cell->contexts < CONTEXTS) {
		cell->contexts = class_of_running(cell);
		if (TASKS_HAVE_HOLDERS) {
			struct task_struct *task = bpf_get_current_task_btf();

			if (holder_of(cell, task) != cell->holder)
				run_holder(cell, task, holder_of(cell, task));
		}
	}
	end(cell);
	return 0;
}

/* Not 0: the task sleeps until it is woken. */
static inline u64 state_of(struct task_struct *task)
{
	if (HAS(task_struct___state, __state))
		return ((struct task_struct___state *)task)->__state;
	return ((struct task_struct___before_5_14 *)task)->state;
}

/* The task that ran goes to sleep by itself: it is not preempted. Its own fields say whose it is: where the switch to it was not
 * seen (see leave), the cell still has the task before it. */
static inline void count_sleep(struct Cell *cell, struct task_struct *task, int is_preempted)
{
	u32 holder;

	if (is_preempted || !state_of(task))
		return;
	if (class_of(cell, task) == OWN)
		cell->totals[SLEEPS]++;
	if (TASKS_HAVE_HOLDERS && (holder = holder_of(cell, task)))
		own(holder, SLEEPS, 1);
}

SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[1], *next = (void *)ctx[2];
	struct Cell *cell = mine();
	u32 holder = 0;
	u64 class, last;

	if (!cell)
		return 0;
	class = class_of(cell, next);
	if (TASKS_HAVE_HOLDERS) {
		know(cell, 0);
		count_user(cell, task);
		holder = holder_of(cell, next);
	}
	count_sleep(cell, task, ctx[0] & 1);
	/* From one task of a class to another nothing changes: the clock is half of what an event costs. */
	if (cell->contexts != class || cell->holder != holder) {
		know(cell, 0);
		last = cell->last_ns;
		charge(cell);
		/* Tasks switch outside of all interrupts: what is left on the stack lost its exit. */
		cell->contexts = class;
		if (TASKS_HAVE_HOLDERS)
			run_holder(cell, next, holder);
		else if (class == OWN)
			holder = COMMAND;
		if (targ.owns)
			begin_task(cell, holder, cell->last_ns - last);
		end(cell);
	} else if (TASKS_HAVE_HOLDERS) {
		run_holder(cell, next, holder);
	}
	return 0;
}

static inline u64 softirq(u32 vector)
{
	return SOFTIRQ + (vector < SOFTIRQ_VECTORS ? vector : 0);
}

SEC("tp_btf/softirq_entry")
int softirq_entry(u64 *ctx)
{
	return enter(softirq(ctx[0]));
}

SEC("tp_btf/softirq_exit")
int softirq_exit(u64 *ctx)
{
	return leave(softirq(ctx[0]), 0);
}

/* The place of the timer's interrupt that ends now: 0 if the tick expired in it, or is not known. */
static inline u32 beyond_tick(void)
{
	struct Cell *cell = mine();
	u32 is_tick;

	if (!targ.tick || !cell)
		return 0;
	is_tick = cell->is_tick;
	cell->is_tick = 0;
	return is_tick ? 0 : EXTRA_TIMERS;
}

/* Devices' interrupts pass irq_handler_*; x86's own vectors have a pair of tracepoints each. */
#define HARD(entry, exit, event) \
	SEC("tp_btf/" #entry) int entry(u64 *ctx) { return enter(HARDIRQ); } \
	SEC("tp_btf/" #exit) int exit(u64 *ctx) { return leave(HARDIRQ, event); }
HARD(irq_handler_entry, irq_handler_exit, 0)
HARD(local_timer_entry, local_timer_exit, beyond_tick())
HARD(reschedule_entry, reschedule_exit, RESCHEDULE_IPIS)
HARD(call_function_entry, call_function_exit, CALL_IPIS)
HARD(call_function_single_entry, call_function_single_exit, CALL_IPIS)
HARD(irq_work_entry, irq_work_exit, 0)

/* Before the child runs. Threads have their process' id. */
SEC("tp_btf/sched_process_fork")
int followed_fork(u64 *ctx)
{
	u32 parent = ((struct task_struct *)ctx[0])->tgid, child = ((struct task_struct *)ctx[1])->tgid;
	u32 cpu = bpf_get_smp_processor_id();

	if (TASKS_HAVE_HOLDERS)
		return 0;
	if (parent == child || !bpf_map_lookup_elem(&followed, &parent))
		return 0;
	if (bpf_map_update_elem(&followed, &child, &parent, 0) && cpu < MAX_CPUS)
		all.cells[cpu].not_followed++;
	change(&all.task_changes);
	return 0;
}

/* A process' first thread is freed last; then its id is anybody's. */
SEC("tp_btf/sched_process_free")
int followed_free(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 id = task->pid;

	if (targ.owns != OF_THREADS && id != task->tgid)
		return 0;
	if (targ.owns == OF_HOLDERS)
		end_holder(id);
	if (!bpf_map_delete_elem(&followed, &id))
		change(&all.task_changes);
	return 0;
}

#include "owner_points.h"
