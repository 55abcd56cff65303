/* ACK filter at tc egress of a receiver's device: of the pure ACKs only some leave. ack_filter.rs loads it,
 * reads its counts, and sends again what is held too long. IPv4 without options alone is filtered. */
#include "core.h"
#include "socket.h"
#include "ack_filter.layout.h"

/* acks: at least every so many-th ACK leaves. segments: an ACK that covers so many leaves. 0: no such rule. */
const volatile struct Targ targ = {};

struct {
	struct Totals totals;
	struct Flow flows[FLOWS];
} all = {};

struct inet_connection_sock {
	struct {
		u16 rcv_mss;
	} CORE icsk_ack;
} CORE;

struct tcp_sock___filter {
	struct inet_connection_sock inet_conn;
	u32 rcv_wnd, rcv_wup;
} CORE;

static struct tcp_sock___filter *(*bpf_skc_to_tcp_sock)(void *sk) = (void *)137;

/* Which place of `flows` a socket has; gone with the socket. */
struct {
	NUMBER(type, 24); /* BPF_MAP_TYPE_SK_STORAGE */
	NUMBER(map_flags, 1); /* BPF_F_NO_PREALLOC */
	TYPE(key, int);
	TYPE(value, u32);
} places SEC(".maps");

enum { PASS = 0, STOLEN = 4 }; /* TC_ACT_STOLEN: gone, and no loss that TCP would hear of */
enum { SYN = 2, PSH = 8, ACK = 16 };

#define COUNT(which) __sync_fetch_and_add(&all.totals.which, 1)

struct segment {
	u32 ack, header, payload;
	u8 flags;
	u8 plain; /* no options but timestamps */
};

static inline int parse(struct segment *segment, struct __sk_buff *skb)
{
	u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	u32 word;

	if (skb->protocol != __builtin_bswap16(0x0800) || data + 54 > end)
		return 0;
	/* No options, TCP, and no fragment. */
	if (data[14] != 0x45 || data[23] != 6 || *(u16 *)(data + 20) & __builtin_bswap16(0x3fff))
		return 0;
	segment->ack = __builtin_bswap32(*(u32 *)(data + 42));
	segment->header = data[46] >> 4 << 2;
	segment->flags = data[47];
	segment->payload = skb->len - 34 - segment->header;
	segment->plain = segment->header == 20;
	if (segment->header == 32 && data + PACKET <= end) {
		word = __builtin_bswap32(*(u32 *)(data + 54));
		segment->plain = word == 0x0101080a; /* NOP, NOP, timestamps of 10 bytes: RFC 7323 A */
	}
	return 1;
}

static inline void leaves(struct Flow *flow, u32 ack, u32 edge)
{
	flow->left = ack;
	flow->edge = edge;
	flow->held = 0;
	flow->held_at_ns = 0;
	flow->hole = 0;
}

/* What the flush sends again: gone if a later ACK has left meanwhile. */
static inline int flush(struct __sk_buff *skb)
{
	struct Flow *flow = &all.flows[skb->mark & (FLOWS - 1)];
	struct segment segment;

	if (!parse(&segment, skb) || !flow->held || segment.ack != flow->seen)
		return STOLEN;
	leaves(flow, segment.ack, flow->held_edge);
	COUNT(flushed);
	return PASS;
}

/* The socket's place, a new one if it has none or another took it. */
static inline struct Flow *flow_of(struct __sk_buff *skb, struct bpf_sock *sk, int *is_new)
{
	u32 *place = bpf_sk_storage_get(&places, sk, 0, 1);
	u64 cookie = bpf_get_socket_cookie(skb);
	struct Flow *flow;

	if (!place)
		return 0;
	flow = &all.flows[*place & (FLOWS - 1)];
	*is_new = flow->owner != cookie;
	if (*is_new) {
		*place = __sync_fetch_and_add(&all.totals.next, 1);
		flow = &all.flows[*place & (FLOWS - 1)];
		flow->owner = cookie;
	}
	return flow;
}

/* Whether a pure ACK of something new must leave now. */
static inline int is_due(struct Flow *flow, u32 ack, u32 window, u32 mss)
{
	u32 known = flow->edge - ack;

	if (targ.acks && flow->held + 1 >= targ.acks)
		return 1;
	if (targ.segments && ack - flow->left >= targ.segments * mss)
		return 1;
	/* The peer knows of less than half of the window that there is: it may be waiting for more. */
	return (s32)known < (s32)(window / 2);
}

SEC("tc")
int ack_filter(struct __sk_buff *skb)
{
	struct bpf_sock *sk;
	struct tcp_sock___filter *tcp;
	struct segment segment;
	struct Flow *flow;
	u32 edge;
	int is_new, is_duplicate;

	if ((skb->mark & ~(FLOWS - 1)) == FLUSH)
		return flush(skb);
	sk = skb->sk;
	if (!sk || !parse(&segment, skb) || segment.flags & SYN)
		return PASS;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return PASS;
	tcp = bpf_skc_to_tcp_sock(sk);
	if (!tcp)
		return PASS;
	flow = flow_of(skb, sk, &is_new);
	if (!flow)
		return PASS;
	edge = tcp->rcv_wup + tcp->rcv_wnd;
	if (is_new) {
		flow->seen = segment.ack;
		leaves(flow, segment.ack, edge);
		return PASS;
	}
	if ((s32)(segment.ack - flow->seen) < 0)
		return PASS;
	/* Anything but a pure ACK of something new leaves: data, FIN, RST, ECN's echo, SACK, a duplicate,
	 * an update of the window; and all once an end has closed. It carries the acknowledgement of all
	 * that is held. */
	is_duplicate = segment.ack == flow->seen && edge == flow->edge;
	if (segment.payload || (segment.flags & ~PSH) != ACK || !segment.plain || segment.ack == flow->seen
	    || sk->state != ESTABLISHED || flow->hole) {
		flow->seen = segment.ack;
		leaves(flow, segment.ack, edge);
		flow->hole = !segment.payload && (!segment.plain || is_duplicate);
		return PASS;
	}
	flow->seen = segment.ack;
	if (is_due(flow, segment.ack, tcp->rcv_wnd, tcp->inet_conn.icsk_ack.rcv_mss)) {
		leaves(flow, segment.ack, edge);
		COUNT(passed);
		return PASS;
	}
	flow->version++;
	barrier();
	flow->length = segment.header + 34;
	if (segment.header == 32 ? bpf_skb_load_bytes(skb, 0, flow->packet, PACKET)
				 : bpf_skb_load_bytes(skb, 0, flow->packet, 54)) {
		/* Unreadable: better an ACK too many. */
		leaves(flow, segment.ack, edge);
		return PASS;
	}
	barrier();
	flow->version++;
	flow->held_edge = edge;
	flow->held++;
	if (!flow->held_at_ns)
		flow->held_at_ns = bpf_ktime_get_ns();
	COUNT(held);
	return STOLEN;
}
