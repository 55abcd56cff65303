/* Each process that has sockets is an owner (owner.h): a holder, with a place for each network namespace and port of its sockets.
 * The place that it got first is also where its tasks' time is.
 *
 * In a trial (targ.hosts) readers give each host's process a place; programs make no other. */

struct kernfs_node {
	u64 id;
} CORE;

struct cgroup {
	struct kernfs_node *kn;
} CORE;

struct css_set {
	struct cgroup *dfl_cgrp;
} CORE;

struct nsproxy {
	struct net *net_ns;
} CORE;

struct task_struct___owner {
	int pid, tgid;
	u64 utime, start_time;
	struct task_struct___owner *group_leader;
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
	char comm[COMM];
} CORE;

/* Places by whose they are; and, with no process, the ports that are listened on. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, struct Key);
	TYPE(value, u32);
} owned_place SEC(".maps");

/* By place. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct Holder);
} owned_holder SEC(".maps");

#define BPF_NOEXIST 1

static inline struct Holder *holder_at(u32 place)
{
	return bpf_map_lookup_elem(&owned_holder, &place);
}

/* Place of a task's process, or of a named thread. 0 if there is none. The cell is as in followed_as. */
static inline u32 holder_of(struct Cell *cell, struct task_struct *task)
{
	u32 id = targ.owns == OF_THREADS ? task->pid : task->tgid;

	if (!task->pid || task->flags & PF_KTHREAD)
		return 0;
	return followed_as(cell, id);
}

/* Of processes with sockets alone the reader asks for user time. */
#define HAVE_USER_TIME (targ.owns == OF_HOLDERS && !targ.hosts)

/* This task begins to run. */
static inline void run_holder(struct Cell *cell, struct task_struct *task, u32 holder)
{
	cell->holder = holder;
	if (HAVE_USER_TIME && holder)
		cell->utime = ((struct task_struct___owner *)task)->utime;
}

/* This task stops to run. */
static inline void count_user(struct Cell *cell, struct task_struct *task)
{
	u64 now;

	if (!HAVE_USER_TIME)
		return;
	now = ((struct task_struct___owner *)task)->utime;
	if (cell->holder && now > cell->utime)
		own(cell->holder, HARDIRQ + USER_NS, now - cell->utime);
	cell->utime = now;
}

/* The place of these sockets, which is made if there is none. What finds no room is a neighbour's. */
static __attribute__((noinline)) u32 place_of(const struct Key *wanted, const struct Holder *told)
{
	u32 *known, place, cpu = bpf_get_smp_processor_id();
	struct Holder *holder;
	struct Key key;

	if (!wanted || !told)
		return NEIGHBOUR;
	key = *wanted;
	known = bpf_map_lookup_elem(&owned_place, &key);
	if (known)
		return *known;
	place = key.tgid * 0x9e3779b1 ^ key.port * 0x85ebca6b;
	for (int i = 0; i < PROBES; i++, place++) {
		u32 at = targ.rows > OWNERS ? OWNERS + place % (targ.rows - OWNERS) : 0;

		holder = holder_at(at);
		if (!holder)
			break;
		if (holder->is_taken || __sync_val_compare_and_swap(&holder->is_taken, 0, 1))
			continue;
		holder->start = key.start;
		holder->tgid = key.tgid;
		holder->netns = key.netns;
		holder->port = key.port;
		holder->cgroup = told->cgroup;
		__builtin_memcpy(holder->name, told->name, COMM);
		holder->has_ended = holder->ports = 0;
		if (!bpf_map_update_elem(&owned_place, &key, &at, BPF_NOEXIST)) {
			barrier();
			holder->is_told = 1;
			return at;
		}
		/* Another CPU was faster. */
		holder->is_taken = 0;
		known = bpf_map_lookup_elem(&owned_place, &key);
		if (known)
			return *known;
		break;
	}
	if (cpu < MAX_CPUS)
		all.cells[cpu].not_followed++;
	return NEIGHBOUR;
}

/* The place of a process' sockets that have no port yet, in its own network namespace. */
static inline u32 place_of_task(struct task_struct *of)
{
	struct task_struct___owner *task = (void *)of, *leader = task->group_leader;
	struct Holder told = {};
	struct Key key = {};
	u32 place;

	if (targ.hosts) {
		place = holder_of(0, of);
		return place ? place : NEIGHBOUR;
	}
	key.tgid = task->tgid;
	key.start = leader->start_time;
	key.netns = task->nsproxy ? task->nsproxy->net_ns->ns.inum : 0;
	told.cgroup = leader->cgroups->dfl_cgrp->kn->id;
	bpf_probe_read_kernel(told.name, COMM, &leader->comm);
	place = place_of(&key, &told);
	if (place >= OWNERS && !bpf_map_update_elem(&followed, &key.tgid, &place, BPF_NOEXIST))
		change(&all.task_changes);
	return place;
}

/* The place of the same process' sockets with this port and network namespace. */
static inline u32 place_with(u32 place, u32 port, u32 netns)
{
	struct Holder *known = holder_at(place), *first, told = {};
	struct Key key = {};
	u32 *first_place, *there;

	if (place < OWNERS || targ.hosts || !known || (known->port == port && known->netns == netns))
		return place;
	key.start = known->start;
	key.tgid = known->tgid;
	key.netns = netns;
	key.port = port;
	there = bpf_map_lookup_elem(&owned_place, &key);
	if (there)
		return *there;
	first_place = bpf_map_lookup_elem(&followed, &known->tgid);
	first = first_place ? holder_at(*first_place) : 0;
	if (port && first && first->ports++ >= PORTS)
		key.port = 0;
	told.cgroup = known->cgroup;
	__builtin_memcpy(told.name, known->name, COMM);
	return place_of(&key, &told);
}

static inline void listen_on(u32 port, u32 netns)
{
	struct Key key = { .netns = netns, .port = port };
	u32 is_listened = 1;

	bpf_map_update_elem(&owned_place, &key, &is_listened, 0);
}

static inline int is_listened(u32 port, u32 netns)
{
	struct Key key = { .netns = netns, .port = port };

	return bpf_map_lookup_elem(&owned_place, &key) != 0;
}

static inline void end_holder(u32 tgid)
{
	u32 *place = bpf_map_lookup_elem(&followed, &tgid);
	struct Holder *holder = place ? holder_at(*place) : 0;

	if (holder)
		holder->has_ended = 1;
}
