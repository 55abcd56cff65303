/* Whose softirq time it is. Each ns of a softirq goes to the owner of the packet in hand: at once where that is known, else to
 * the cell's pot until it is. What has no owner at the end of a softirq is the host's: it is in the contexts alone.
 *
 * An owner's time is part of the contexts' (exact.bpf.c), never beside it. A softirq of a vector is one context, and the
 * rows of `owned` are by place from HARDIRQ on.
 *
 * A run of NET_RX, and the interrupt that raised it, are the first owner's that has time in it. An interrupt that woke a task is
 * the task's owner's. */
#define NOBODY 0
/* True if tasks' time is counted by holder, too (holder.h). */
#define TASKS_HAVE_HOLDERS (targ.owns == OF_HOLDERS || targ.owns == OF_THREADS)

/* A row for each CPU and owner. */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_F_MMAPABLE 1024
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct Owned);
} owned SEC(".maps");

/* The owner of a socket. What a listener accepts inherits it. */
#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
#define BPF_F_CLONE 512
struct {
	NUMBER(type, BPF_MAP_TYPE_SK_STORAGE);
	NUMBER(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	TYPE(key, int);
	TYPE(value, u32);
} owned_socket SEC(".maps");

/* The same by the socket's cookie, for points whose socket the verifier does not trust: skb->sk. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, u64);
	TYPE(value, u32);
} owned_cookie SEC(".maps");

/* Connections of the command, by both ends: who is at the other end, where that is on this host. The oldest gives way. */
#define BPF_MAP_TYPE_LRU_HASH 9
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, u64);
	TYPE(value, u32);
} owned_pair SEC(".maps");

static inline u32 running(struct Cell *cell)
{
	return cell->contexts & (CONTEXTS - 1);
}

static inline int is_softirq(u32 context)
{
	return context >= SOFTIRQ && context < SOFTIRQ + SOFTIRQ_VECTORS;
}

static inline struct Owned *row_of(u32 owner)
{
	u32 key = bpf_get_smp_processor_id() * targ.rows + owner;

	return bpf_map_lookup_elem(&owned, &key);
}

static inline void add(struct Owned *row, u32 place, u64 amount)
{
	u64 at = place - HARDIRQ;

	/* Keeps the compared register the index: the verifier of Linux 6.1 does not see that a shifted copy is bounded. */
	asm volatile("" : "+r"(at));
	if (at >= OWNED_TOTALS)
		return;
	asm volatile("" : "+r"(at));
	row->totals[at] += amount;
}

static inline void own(u32 owner, u32 place, u64 amount)
{
	struct Owned *row = row_of(owner);

	if (row)
		add(row, place, amount);
}

static inline void own_events(struct Cell *cell, struct Owned *row)
{
	if (!cell->events)
		return;
	if (cell->events & 1)
		add(row, NET_RX_RUNS, 1);
	if (cell->events >> 1)
		add(row, cell->events >> 1, 1);
	cell->events = 0;
}

/* Time that was just charged to the context that runs. */
static inline void hold(struct Cell *cell, u32 context, u64 ns)
{
	struct Owned *row;

	if (!is_softirq(context))
		return;
	if (!cell->owner) {
		cell->pot += ns;
		return;
	}
	row = row_of(cell->owner);
	if (!row)
		return;
	add(row, context, ns);
	own_events(cell, row);
}

/* What is in the pot, and all that follows in this softirq, is this owner's. */
static inline void bill(struct Cell *cell, u32 owner)
{
	u32 context = running(cell);
	struct Owned *row = owner && (cell->pot || cell->hard_pot) ? row_of(owner) : 0;

	if (row) {
		add(row, context, cell->pot);
		add(row, HARDIRQ, cell->hard_pot);
		own_events(cell, row);
	}
	cell->pot = cell->hard_pot = 0;
	cell->owner = owner;
	cell->segments = 0;
	if (context == SOFTIRQ_HRTIMER)
		cell->pacer = owner;
}

/* The place of the packet in hand among those that are forwarded: part of its time is kept there until it comes by again. */
static inline struct Transit *transit_of(struct Cell *cell)
{
	/* Read back from memory the address is a number; a register has a pointer, which the verifier does not let be shifted. */
	u64 skb = *(volatile u64 *)&cell->skb;
	u32 cpu = bpf_get_smp_processor_id();

	return cpu < MAX_CPUS ? &all.transits[cpu][(skb >> 8 ^ skb >> 13) & (TRANSITS - 1)] : 0;
}

/* Those in the queue share what is in the pot. */
static inline void share(struct Cell *cell)
{
	u64 each = cell->queued ? cell->pot / cell->queued : 0;

	for (u32 i = 0; i < QUEUED && i < cell->queued; i++)
		if (cell->queue[i])
			own(cell->queue[i], running(cell), each);
	cell->pot = cell->queued = 0;
}

/* The packet in hand, or the rest of a list, is done. */
static inline void settle(struct Cell *cell)
{
	u32 context = running(cell), *owner = 0;
	struct Transit *transit;

	/* Without programs of cgroups the receiver may have been there, unseen. */
	if (cell->pot && cell->sender && !targ.probes)
		owner = bpf_map_lookup_elem(&owned_cookie, &cell->sender);
	if (owner)
		bill(cell, *owner);
	else if (cell->pot && cell->segments == 1 && context == SOFTIRQ_NET_RX && (transit = transit_of(cell))) {
		if (!transit->skb)
			cell->in_transit++;
		if (transit->skb != cell->skb)
			transit->ns = 0;
		transit->skb = cell->skb;
		transit->ns += cell->pot;
	}
	cell->pot = cell->sender = 0;
	cell->owner = cell->segments = cell->is_list = cell->queued = 0;
}

/* A softirq begins `idle_ns` after the last event. An interrupt that ended just before raised it. */
static inline void begin_softirq(struct Cell *cell, u32 context, u64 idle_ns)
{
	int is_raised = idle_ns < RAISED_NS && (context == SOFTIRQ_NET_RX || context == SOFTIRQ_HRTIMER);

	cell->hard_pot = is_raised ? cell->hard_ns : 0;
	cell->events = context == SOFTIRQ_NET_RX;
	if (cell->hard_pot)
		cell->events |= cell->interrupt << 1;
	cell->hard_ns = cell->pot = cell->sender = 0;
	cell->owner = cell->segments = cell->is_list = cell->last_owner = cell->queued = 0;
}

/* A task begins `idle_ns` after the last event. An interrupt that ended just before woke it. */
static inline void begin_task(struct Cell *cell, u32 owner, u64 idle_ns)
{
	if (owner && cell->hard_ns && cell->interrupt && idle_ns < WOKEN_NS)
		own(owner, cell->interrupt, 1);
	cell->hard_ns = 0;
}

static inline void end_softirq(struct Cell *cell)
{
	/* A pacing timer that was moved after it was armed expires without a packet. */
	if (running(cell) == SOFTIRQ_HRTIMER && !cell->owner)
		cell->owner = cell->pacer;
	if (!cell->owner && !cell->segments)
		cell->owner = cell->last_owner;
	if (cell->queued)
		share(cell);
	if (cell->owner)
		bill(cell, cell->owner);
	settle(cell);
}
