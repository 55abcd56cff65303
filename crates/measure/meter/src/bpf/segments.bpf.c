/* What TCP builds, what leaves it and what comes in, of some network namespaces: the hosts of a trial that are on one
 * machine share a copy of these programs. segments.rs reads the counts. None of these hooks can interrupt another on its CPU: all run with softirqs off. */
#include "core.h"
#include "segments.layout.h"

/* Where the counts of one direction begin, and where those of runs, sizes and drainers do. */
enum { DATA_SKBS, DATA_BYTES, DATA_SEGMENTS, DATA_SQUARES, PURE_ACKS };
enum { SENT = DATA_SKBS_SENT, RECEIVED = DATA_SKBS_RECEIVED, RUNS = DATA_RUNS_SENT, SIZES = BELOW_128, DRAINED = SYSTEM_CALL_SKBS };
enum kind { DATA_SENT, ACK_SENT, DATA_RECEIVED, ACK_RECEIVED };
enum drainer { SYSTEM_CALL, NET_RX, TASKLET, TIMER, OTHER };
_Static_assert(SENT + PURE_ACKS == PURE_ACKS_SENT && RECEIVED + PURE_ACKS == PURE_ACKS_RECEIVED, "a direction");
_Static_assert(RUNS + ACK_RECEIVED == ACK_RUNS_RECEIVED && TAILS < CONNECTION_COUNTS, "of a connection");
_Static_assert(SIZES + 10 == FROM_65536 && DRAINED + 2 * OTHER + 1 == OTHER_BYTES, "sizes and drainers");

const volatile struct Targ targ = {};

/* Vectors, of include/linux/interrupt.h. */
enum { HI_SOFTIRQ = 0, TIMER_SOFTIRQ = 1, NET_RX_SOFTIRQ = 3, TASKLET_SOFTIRQ = 6, HRTIMER_SOFTIRQ = 8 };

/* Kind of each connection's last packet at an end, in the two lowest bits of the connection's hash. */
#define FLOWS 4096

/* What each connection's last pure ACK acknowledged, the right edge of its window, and whose it is. */
struct edge {
	u32 flow, edge, acked;
};

/* One variable, so that its parts are where segments.rs looks for them. */
struct {
	struct Namespace places[PLACES];
	struct Cpu cpus[MAX_CPUS];
	u32 flows[FLOWS];
	struct edge edges[FLOWS];
} all = {};

/* Of each namespace a row of `targ.cpus`. So many as there are namespaces is set before loading. */
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_F_MMAPABLE 1024
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	NUMBER(map_flags, BPF_F_MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct Cell);
} cells SEC(".maps");

/* By connection, where asked: the first 15 of the counts above. Those that were not seen for longest give way.
 * A key is the hash of this end's address and port, and that of the other's. */
#define BPF_MAP_TYPE_LRU_HASH 9
struct connection {
	u64 counts[CONNECTION_COUNTS];
};
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, u64);
	TYPE(value, struct connection);
} connections SEC(".maps");

struct packet {
	u32 payload, sequence, from, to;
	u8 flags;
};
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

/* Of the namespace of a device; null where it is not counted. */
static inline struct Cell *cell_of(struct net_device *dev, u32 cpu)
{
	u32 netns = dev->nd_net.net->ns.inum;

	if (cpu >= targ.cpus)
		return 0;
#pragma unroll
	for (u32 i = 0; i < PROBES; i++) {
		/* Inodes of namespaces are given out in a row. */
		struct Namespace *place = &all.places[(netns + i) % PLACES];

		if (place->netns == netns) {
			u32 index = place->row * targ.cpus + cpu;
			return place->is_open ? bpf_map_lookup_elem(&cells, &index) : 0;
		}
		if (!place->netns)
			return 0;
	}
	return 0;
}

static inline u32 mix(u32 address, u32 port)
{
	return (address ^ port * 0x9e3779b1) * 0x85ebca6b;
}

/* As much of a TCP header as is looked at: ports, sequence, acknowledgement, flags. */
#define TCP_HEADER 16

/* Of a TCP header at this word. */
static inline int tcp(struct packet *packet, const u32 *tcp, u32 from, u32 to, u32 length)
{
	u32 ports = __builtin_bswap32(tcp[0]), word = __builtin_bswap32(tcp[3]);
	u32 header = word >> 28 << 2;

	packet->from = mix(from, ports >> 16);
	packet->to = mix(to, ports & 0xffff);
	packet->sequence = __builtin_bswap32(tcp[1]);
	packet->flags = word >> 16;
	packet->payload = length > header ? length - header : 0;
	return 1;
}

/* `all`: bytes from the network header on. 0: not TCP. IPv4 with options and IPv6 with extension
 * headers are not looked into. */
static inline int parse(struct packet *packet, struct sk_buff *skb, u32 all)
{
	const unsigned char *header = skb->head + skb->network_header;
	u32 head[15], from = 0, to = 0, length;

	/* Lengths are those of the headers, since a frame may be padded; 0 stands for more than fits there. */
	if (skb->protocol == __builtin_bswap16(0x0800)) {
		if (bpf_probe_read_kernel(head, 20 + TCP_HEADER, header))
			return 0;
		if ((head[0] & 0xff) != 0x45 || (head[2] >> 8 & 0xff) != 6)
			return 0;
		length = __builtin_bswap32(head[0]) & 0xffff;
		if (!length)
			length = all;
		return length > 20 && tcp(packet, head + 5, head[3], head[4], length - 20);
	}
	if (skb->protocol == __builtin_bswap16(0x86dd)) {
		if (bpf_probe_read_kernel(head, 40 + TCP_HEADER, header))
			return 0;
		if ((head[1] >> 16 & 0xff) != 6)
			return 0;
		length = __builtin_bswap32(head[1]) >> 16;
		if (!length)
			length = all - 40;
		from = head[2] ^ head[3] ^ head[4] ^ head[5];
		to = head[6] ^ head[7] ^ head[8] ^ head[9];
		return tcp(packet, head + 10, from, to, length);
	}
	return 0;
}

/* Whether a packet of this kind follows one of another kind, at this end of its connection. */
static inline int begins_run(u64 connection, enum kind kind)
{
	/* Both directions at one end are one; both ends, if they are here, are two. */
	u32 flow = (connection >> 32) * 5 + (u32)connection;
	u32 *last = &all.flows[(flow ^ flow >> 15) & (FLOWS - 1)];
	u32 now = (flow & ~3) | kind;

	if (*last == now)
		return 0;
	*last = now;
	return 1;
}

static inline struct connection *connection_of(u64 key)
{
	struct connection none = {};
	struct connection *connection;
	u32 cpu = bpf_get_smp_processor_id();

	if (!targ.by_connection)
		return 0;
	connection = bpf_map_lookup_elem(&connections, &key);
	if (connection)
		return connection;
	if (!bpf_map_update_elem(&connections, &key, &none, 1 /* BPF_NOEXIST */) && cpu < MAX_CPUS)
		all.cpus[cpu].connections++;
	return bpf_map_lookup_elem(&connections, &key);
}

/* One end of a connection is on one CPU at a time, but for a few packets. */
#define ADD(cell, connection, at, more) do { \
	(cell)->counts[at] += (more); \
	if (connection) \
		(connection)->counts[at] += (more); \
} while (0)

static inline int works(u32 cpu, u32 softirq)
{
	if (cpu < MAX_CPUS)
		all.cpus[cpu].softirq = softirq;
	return 0;
}

/* A payload up to this is one segment: no MSS is below (TCP_MIN_MSS). */
#define ONE_SEGMENT 88

/* Counts what both directions have. 0: no payload. */
static inline int count(struct Cell *cell, struct sk_buff *skb, struct packet *packet, u32 direction,
			enum kind data, u32 *gso_size, struct connection **connection)
{
	u64 key = direction == SENT ? (u64)packet->from << 32 | packet->to
				    : (u64)packet->to << 32 | packet->from;
	u32 payload = packet->payload, segments = 1;
	struct connection *of = 0;
	u16 gso[2] = {};

	if (!payload && (packet->flags & (FIN | SYN | RST | ACK)) != ACK)
		return 0;
	*connection = of = connection_of(key);
	if (!payload) {
		ADD(cell, of, direction + PURE_ACKS, 1);
		if (begins_run(key, data + 1))
			ADD(cell, of, RUNS + data + 1, 1);
		return 0;
	}
	if (payload > ONE_SEGMENT) {
		struct skb_shared_info *shared = (void *)(skb->head + skb->end);
		/* gso_segs is behind gso_size in every kernel so far; a read takes 5 ns. */
		bpf_probe_read_kernel(gso, sizeof(gso), &shared->gso_size);
		if (gso[1])
			segments = gso[1];
	}
	*gso_size = gso[0];
	ADD(cell, of, direction + DATA_SKBS, 1);
	ADD(cell, of, direction + DATA_BYTES, payload);
	ADD(cell, of, direction + DATA_SEGMENTS, segments);
	ADD(cell, of, direction + DATA_SQUARES, (u64)payload * payload);
	if (begins_run(key, data))
		ADD(cell, of, RUNS + data, 1);
	return 1;
}

/* Whether a pure ACK that leaves moved the window. tcp_select_window has noted it in the socket by then; what has no socket
 * is forwarded. */
static inline void count_window(struct Cell *cell, struct packet *packet, struct tcp_sock *socket)
{
	u32 flow = packet->from * 5 + packet->to, at[2] = {}, edge;
	struct edge *last = &all.edges[(flow ^ flow >> 15) & (FLOWS - 1)];

	if (bpf_probe_read_kernel(&at[0], sizeof(u32), &socket->rcv_wup) ||
	    bpf_probe_read_kernel(&at[1], sizeof(u32), &socket->rcv_wnd))
		return;
	edge = at[0] + at[1];
	if (last->flow == flow) {
		cell->counts[(s32)(edge - last->edge) > 0 ? WINDOW_ADVANCING_ACKS : ONLY_ACKNOWLEDGING_ACKS]++;
		if (edge == last->edge && at[0] == last->acked)
			cell->counts[DUPLICATE_ACKS]++;
	}
	last->flow = flow;
	last->edge = edge;
	last->acked = at[0];
}

/* TCP sends data with its socket locked: by a task, which then owns it, or in a softirq, which then is the one
 * that was last seen to work, since they do not nest: one that receives (which is seen anyway), or one of those below that
 * run seldom. So the hot softirq_entry is not needed, 20 ns each. What has no socket is forwarded. */
static inline enum drainer drainer(u32 cpu, struct sock *socket)
{
	if (socket && socket->sk_lock.owned) {
		switch (running_thread()) {
		case USER_THREAD: return SYSTEM_CALL;
		case KWORKER_THREAD: return TASKLET;
		case NAPI_THREAD: return NET_RX;
		default: return OTHER;
		}
	}
	if (cpu >= MAX_CPUS)
		return OTHER;
	switch (all.cpus[cpu].softirq) {
	case NET_RX_SOFTIRQ: return NET_RX;
	case HI_SOFTIRQ:
	case TASKLET_SOFTIRQ: return TASKLET;
	case TIMER_SOFTIRQ:
	case HRTIMER_SOFTIRQ: return TIMER;
	default: return OTHER;
	}
}

static inline u32 size_class(u32 payload)
{
	u32 class = 0;

#pragma unroll
	for (int i = 0; i < 10; i++) {
		u64 below = (u64)payload - (128u << i);

		/* Or clang makes a jump of it, and each doubles the paths that the verifier walks: 90 ms to load. */
		asm volatile("" : "+r"(below));
		class += 1 - (below >> 63);
	}
	return class;
}

/* Tells the verifier what clang forgets to: an index below 64. */
#define COUNT(cell, index) (cell)->counts[({ u64 at = (index); asm volatile("%0 &= 63" : "+r"(at)); at; })]

SEC("tp_btf/net_dev_queue")
int net_dev_queue(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	u32 cpu = bpf_get_smp_processor_id();
	struct Cell *cell = cell_of(skb->dev, cpu);
	struct connection *connection = 0;
	struct packet packet;
	u32 mss = 0, who;
	u64 socket, last;
	struct sock *owner;

	if (!cell)
		return 0;
	/* Read once, before paths part: for each path to a pointer that is read from an skb the verifier searches all of the
	 * kernel's types, 2 ms; it took 97 ms to load this. */
	owner = skb->sk;
	asm volatile("" : "+r"(owner));
	/* The skb begins with its link-layer header. */
	if (!parse(&packet, skb, skb->len - (u16)(skb->network_header - skb->mac_header)))
		return 0;
	if (!count(cell, skb, &packet, SENT, DATA_SENT, &mss, &connection)) {
		if (owner && !packet.payload && (packet.flags & (FIN | SYN | RST | ACK)) == ACK)
			count_window(cell, &packet, (struct tcp_sock *)owner);
		return 0;
	}
	if (mss && packet.payload > mss) {
		COUNT(cell, LARGE_SKBS)++;
		COUNT(cell, LARGE_BYTES) += packet.payload;
	}
	COUNT(cell, SIZES + size_class(packet.payload))++;
	who = DRAINED + 2 * drainer(cpu, owner);
	COUNT(cell, who)++;
	COUNT(cell, who + 1) += packet.payload;

	last = cell->socket;
	cell->socket = (u64)owner;
	barrier(); /* Read back as a number: the verifier forbids arithmetic with the pointer. */
	socket = cell->socket;
	if (cell->full_mss > packet.payload && last == socket && cell->next == packet.sequence)
		ADD(cell, connection, TAILS, 1);
	cell->next = packet.sequence + packet.payload;
	cell->full_mss = 0;
	if (!mss && packet.payload > ONE_SEGMENT && socket)
		bpf_probe_read_kernel(&mss, sizeof(mss), &((struct tcp_sock *)socket)->mss_cache);
	if (mss && packet.payload % mss == 0)
		cell->full_mss = mss;
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int net_dev_start_xmit(u64 *ctx)
{
	struct Cell *cell = cell_of((struct net_device *)ctx[1], bpf_get_smp_processor_id());
	struct sk_buff *skb = (void *)ctx[0];
	struct skb_shared_info *shared;
	u8 fragments = 0;

	if (!cell)
		return 0;
	shared = (void *)(skb->head + skb->end);
	bpf_probe_read_kernel(&fragments, sizeof(fragments), &shared->nr_frags);
	cell->counts[DEVICE_SKBS]++;
	/* The headers are in memory of their own. */
	cell->counts[DEVICE_FRAGMENTS] += 1 + fragments;
	return 0;
}

SEC("tp_btf/netif_receive_skb")
int netif_receive_skb(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	u32 cpu = bpf_get_smp_processor_id();
	struct Cell *cell = cell_of(skb->dev, cpu);
	struct connection *connection;
	struct packet packet;
	u32 gso_size;

	works(cpu, NET_RX_SOFTIRQ);

	if (cell && parse(&packet, skb, skb->len))
		count(cell, skb, &packet, RECEIVED, DATA_RECEIVED, &gso_size, &connection);
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int timer_expire_entry(u64 *ctx)
{
	return works(bpf_get_smp_processor_id(), TIMER_SOFTIRQ);
}

SEC("tp_btf/hrtimer_expire_entry")
int hrtimer_expire_entry(u64 *ctx)
{
	/* The others expire in hard interrupts, where nothing is sent. */
	if (((struct hrtimer *)ctx[0])->is_soft)
		works(bpf_get_smp_processor_id(), HRTIMER_SOFTIRQ);
	return 0;
}

/* TCP small queues: a work item in the softirq of tasklets, before that a tasklet. */
SEC("tp_btf/workqueue_execute_start")
int workqueue_execute_start(u64 *ctx)
{
	return works(bpf_get_smp_processor_id(), TASKLET_SOFTIRQ);
}

SEC("tp_btf/tasklet_entry")
int tasklet_entry(u64 *ctx)
{
	return works(bpf_get_smp_processor_id(), TASKLET_SOFTIRQ);
}

/* Kernels before 6.4, where a tasklet is not seen. */
SEC("tp_btf/softirq_entry")
int instead_of_tasklet_entry(u64 *ctx)
{
	return works(bpf_get_smp_processor_id(), ctx[0]);
}
