/* Where softirqs show whose packet is in hand (owner.h), and where sockets get their owners. */

#include "socket.h"

/* include/net/tcp_states.h */
#define TIME_WAIT 6
#define SYN_SENT 2
#define CLOSE 7
#define LISTEN 10
#define NEW_SYN_RECV 12
#define AF_INET 2
/* An IPv6 address of a socket, word by word: the verifier takes no other access to these contexts. */
#define WORDS(to, from) ((to)[0] = (from)[0], (to)[1] = (from)[1], (to)[2] = (from)[2], (to)[3] = (from)[3])
#define AF_INET6 10
#define STORAGE_CREATE 1

struct sock___owner {
	struct {
		u16 skc_family;
		volatile u8 skc_state;
		u32 skc_daddr, skc_rcv_saddr;
		u16 skc_dport, skc_num;
		struct {
			u32 words[4];
		} CORE skc_v6_daddr, skc_v6_rcv_saddr;
		struct {
			u64 counter;
		} CORE skc_cookie;
		struct sock___owner *skc_listener;
		possible_net_t skc_net;
	} CORE __sk_common;
} CORE;

struct sk_buff___owner {
	struct sock___owner *sk;
	u32 napi_id;
} CORE;

struct socket___owner {
	struct sock___owner *sk;
} CORE;

struct hrtimer___owner {
	void *function;
} CORE;

struct tcp_sock___owner {
	struct hrtimer pacing_timer, compressed_ack_timer;
} CORE;

/* uapi/linux/bpf.h, up to what is used. */
#define TCP_CONNECT_CB 3
struct bpf_sock_ops {
	u32 op, args[4], family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port;
};

/* kernel/bpf/task_iter.c */
struct iter_task_file {
	void *meta __attribute__((aligned(8)));
	struct task_struct *task;
	u32 fd __attribute__((aligned(8)));
	void *file __attribute__((aligned(8)));
};

static struct socket___owner *(*bpf_sock_from_file)(void *file) = (void *)162;

static inline u32 owner_by(u64 cookie, u32 otherwise)
{
	u32 *owner = bpf_map_lookup_elem(&owned_cookie, &cookie);

	return owner ? *owner : otherwise;
}

/* The owner of any socket, also of one half made. One in TIME-WAIT, and none, are the host's. */
static inline u32 owner_of(struct sock___owner *sk)
{
	u64 cookie = 0;
	u8 state;

	if (!sk)
		return NOBODY;
	state = sk->__sk_common.skc_state;
	if (state == TIME_WAIT)
		return NOBODY;
	if (state == NEW_SYN_RECV) {
		sk = sk->__sk_common.skc_listener;
		if (sk)
			bpf_probe_read_kernel(&cookie, sizeof cookie, &sk->__sk_common.skc_cookie);
		/* Without programs of cgroups it is not known whether the command connects. */
		return owner_by(cookie, targ.probes ? NOBODY : NEIGHBOUR);
	}
	return owner_by(sk->__sk_common.skc_cookie.counter, NEIGHBOUR);
}

static inline u32 end_of(u32 address, u32 port)
{
	return (address ^ port * 0x9e3779b1) * 0x85ebca6b;
}

/* Both ends give the same key. */
static inline u64 pair(u32 one, u32 other)
{
	return one < other ? (u64)one << 32 | other : (u64)other << 32 | one;
}

/* An IPv4 address in one of IPv6 is that IPv4 address. */
static inline u32 folded(const u32 *words)
{
	if (!words[0] && !words[1] && words[2] == __builtin_bswap32(0xffff))
		return words[3];
	return words[0] ^ words[1] ^ words[2] ^ words[3];
}

static inline u64 pair_of(struct sock___owner *sk)
{
	u32 local = sk->__sk_common.skc_rcv_saddr, remote = sk->__sk_common.skc_daddr, words[4];

	if (sk->__sk_common.skc_family == AF_INET6) {
		bpf_probe_read_kernel(words, sizeof words, &sk->__sk_common.skc_v6_rcv_saddr);
		local = folded(words);
		bpf_probe_read_kernel(words, sizeof words, &sk->__sk_common.skc_v6_daddr);
		remote = folded(words);
	}
	return pair(end_of(local, sk->__sk_common.skc_num),
		    end_of(remote, __builtin_bswap16(sk->__sk_common.skc_dport)));
}

static inline u64 pair_of_established(struct bpf_sock *sk)
{
	u32 local = sk->src_ip4, remote = sk->dst_ip4, words[4];

	if (sk->family == AF_INET6) {
		WORDS(words, sk->src_ip6);
		local = folded(words);
		WORDS(words, sk->dst_ip6);
		remote = folded(words);
	}
	return pair(end_of(local, sk->src_port), end_of(remote, __builtin_bswap16(sk->dst_port)));
}

/* By the packet's headers, where the socket is a listener. 0 of IPv6 with extension headers. */
static inline u64 pair_of_packet(struct __sk_buff *skb)
{
	u32 words[10], from, to, ports, header = 20;

	if (bpf_skb_load_bytes(skb, 0, words, 20))
		return 0;
	from = words[3], to = words[4];
	if (skb->protocol == __builtin_bswap16(0x86dd)) {
		if (bpf_skb_load_bytes(skb, 0, words, 40))
			return 0;
		from = folded(words + 2), to = folded(words + 6), header = 40;
	} else {
		header = (words[0] & 15) << 2;
	}
	if (bpf_skb_load_bytes(skb, header, &ports, 4))
		return 0;
	ports = __builtin_bswap32(ports);
	return pair(end_of(from, ports >> 16), end_of(to, ports & 0xffff));
}

/* An established socket that has no owner yet: the other end of a connection of the command, or a neighbour's. `named`: what
 * the socket's cookie is asked of. */
static inline u32 learn_socket(void *sk, u64 pair, void *named)
{
	u32 found = NEIGHBOUR;
	u64 cookie;

	if (bpf_map_lookup_elem(&owned_pair, &pair)) {
		cookie = bpf_get_socket_cookie(named);
		found = PEER;
		bpf_map_update_elem(&owned_cookie, &cookie, &found, 0);
	}
	bpf_sk_storage_get(&owned_socket, sk, &found, STORAGE_CREATE);
	return found;
}

/* The command's sockets have their owner when they are made, or inherited it. The other end is known by both ends'
 * addresses: at its listener by the packet's, and once it is established by its own. All else is a neighbour's. */
static inline u32 owner_of_packet(struct __sk_buff *skb, struct bpf_sock *sk)
{
	u32 *owner = bpf_sk_storage_get(&owned_socket, sk, 0, 0);
	u64 key;

	if (owner)
		return *owner;
	if (targ.owns != OF_COMMAND)
		return NEIGHBOUR;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return NEIGHBOUR;
	if (sk->state == LISTEN) {
		key = pair_of_packet(skb);
		return bpf_map_lookup_elem(&owned_pair, &key) ? PEER : NEIGHBOUR;
	}
	if (sk->state != ESTABLISHED)
		return NEIGHBOUR;
	return learn_socket(sk, pair_of_established(sk), skb);
}

/* The same, from memory where the socket was met lately. */
static inline u32 recent_owner(struct Cell *cell, struct __sk_buff *skb, struct bpf_sock *sk)
{
	u32 changes = all.socket_changes.count, *known;
	u64 address, owner, *recent;

	/* Read back from memory the address is a number, as in transit_of. */
	*(struct bpf_sock *volatile *)&cell->socket = sk;
	address = *(volatile u64 *)&cell->socket;
	recent = &cell->sockets[2 * ((address >> 11 ^ address >> 14) & (RECENT_SOCKETS - 1))];
	if (recent[0] == address && recent[1] >> 32 == changes)
		return recent[1];
	known = bpf_sk_storage_get(&owned_socket, sk, 0, 0);
	if (!known && targ.owns == OF_COMMAND)
		return owner_of_packet(skb, sk);
	owner = known ? *known : NEIGHBOUR;
	recent[0] = address;
	recent[1] = (u64)changes << 32 | owner;
	return owner;
}

/* gso_segs of a packet. */
static inline u32 segments_of(struct sk_buff *skb)
{
	struct skb_shared_info *shared = (void *)skb->head + skb->end;
	u16 segments = 0;

	bpf_probe_read_kernel(&segments, sizeof segments, &shared->gso_segs);
	return segments ? segments : 1;
}

/* A packet begins. In a list of GRO all begin before the first is handed on: they share the pot. */
SEC("tp_btf/netif_receive_skb")
int owned_receive(u64 *ctx)
{
	struct sk_buff *skb = (void *)ctx[0];
	struct sk_buff___owner *more = (void *)ctx[0];
	struct sock___owner *sender = more->sk;
	struct Cell *cell = mine();
	struct Transit *transit;

	if (!cell || !is_softirq(running(cell)))
		return 0;
	begin(cell);
	/* Until a softirq's first packet all is its owner's anyway, and takes no clock. */
	if (cell->owner || cell->segments)
		tick(cell);
	if (more->napi_id > targ.cpus) {
		cell->owner = 0;
		cell->is_list = 1;
		cell->segments += segments_of(skb);
	} else {
		if (cell->segments)
			settle(cell);
		cell->owner = cell->is_list = 0;
		cell->segments = 1;
		cell->sender = sender ? sender->__sk_common.skc_cookie.counter : 0;
		cell->skb = (u64)skb;
		transit = cell->in_transit ? transit_of(cell) : 0;
		if (transit && transit->skb == cell->skb) {
			cell->pot += transit->ns;
			transit->skb = transit->ns = 0;
			cell->in_transit--;
		}
	}
	end(cell);
	return 0;
}

/* The driver's next packet: what follows a list that was handed on has no owner yet. */
static inline int next_of_driver(void)
{
	struct Cell *cell = mine();

	if (!cell || !cell->owner || running(cell) != SOFTIRQ_NET_RX)
		return 0;
	charge(cell);
	cell->last_owner = cell->owner;
	cell->owner = 0;
	end(cell);
	return 0;
}

SEC("tp_btf/napi_gro_receive_entry")
int owned_gro_receive(u64 *ctx)
{
	return next_of_driver();
}

SEC("tp_btf/napi_gro_frags_entry")
int owned_gro_frags(u64 *ctx)
{
	return next_of_driver();
}

/* What is in hand is this owner's: a packet, or so many segments of a list. */
static inline void hand(struct Cell *cell, u32 owner, u32 segments)
{
	if (!cell->is_list) {
		bill(cell, owner);
		return;
	}
	tick(cell);
	segments = segments ? segments : 1;
	if (segments < cell->segments) {
		u64 share = cell->pot * segments / cell->segments;

		own(owner, running(cell), share);
		cell->pot -= share;
		cell->segments -= segments;
		cell->owner = owner;
	} else {
		bill(cell, owner);
	}
}

/* The packet in hand has a socket: in every state, also where that is locked and the packet waits. 1 lets it pass. */
SEC("cgroup_skb/ingress")
int owned_ingress(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct Cell *cell;
	u32 owner;

	if (!sk)
		return 1;
	cell = mine();
	if (!cell || !is_softirq(running(cell)))
		return 1;
	begin(cell);
	owner = recent_owner(cell, skb, sk);
	hand(cell, owner, skb->gso_segs);
	end(cell);
	return 1;
}

/* The packet in hand has a socket: without programs of cgroups, of established TCP whose socket no task has locked. */
SEC("tp_btf/tcp_probe")
int owned_probe(u64 *ctx)
{
	struct sock___owner *sk = (void *)ctx[0];
	struct Cell *cell = mine();
	u32 *known, owner = NEIGHBOUR;

	if (!cell || !is_softirq(running(cell)))
		return 0;
	begin(cell);
	known = bpf_sk_storage_get(&owned_socket, sk, 0, 0);
	if (known)
		owner = *known;
	else if (targ.owns == OF_COMMAND)
		owner = learn_socket(sk, pair_of(sk), sk);
	hand(cell, owner, cell->is_list ? segments_of((void *)ctx[1]) : 0);
	end(cell);
	return 0;
}

/* What a softirq sends of itself, where owner_senders.h cannot tell. */
SEC("tp_btf/net_dev_start_xmit")
int owned_transmit(u64 *ctx)
{
	struct sk_buff___owner *skb = (void *)ctx[0];
	struct Cell *cell = mine();
	u32 owner;

	if (!cell || !is_softirq(running(cell)))
		return 0;
	if (cell->owner ? running(cell) == SOFTIRQ_NET_RX : cell->is_list)
		return 0;
	begin(cell);
	owner = owner_of(skb->sk);
	if (owner && owner != cell->owner) {
		if (cell->owner) {
			cell->owner = owner;
			tick(cell);
		} else {
			bill(cell, owner);
		}
	}
	end(cell);
	return 0;
}

#include "owner_senders.h"

/* Timers of pacing and of ACKs that wait for others, whether they send or find the socket in use. */
static inline int pace(struct hrtimer___owner *timer, u64 function)
{
	struct Cell *cell;
	u64 sk;

	if (targ.pace_kick && function == targ.pace_kick)
		sk = (u64)timer - OFFSET(tcp_sock___owner, pacing_timer);
	else if (targ.ack_kick && function == targ.ack_kick)
		sk = (u64)timer - OFFSET(tcp_sock___owner, compressed_ack_timer);
	else
		return 0;
	cell = mine();
	if (!cell || !is_softirq(running(cell)))
		return 0;
	begin(cell);
	end_turn(cell);
	bill(cell, owner_at(sk));
	end(cell);
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int timer_expired(u64 *ctx)
{
	struct hrtimer___owner *timer = (void *)ctx[0];
	u64 function = (u64)timer->function;
	struct Cell *cell;

	if (targ.tick && function == targ.tick) {
		cell = mine();
		if (cell)
			cell->is_tick = 1;
		return 0;
	}
	return targ.owns ? pace(timer, function) : 0;
}

/* A socket has its owner from when it is made: of TCP, UDP and raw alike. */
static inline void adopt(void *sk, u64 cookie, u32 owner)
{
	u32 *known = bpf_sk_storage_get(&owned_socket, sk, &owner, STORAGE_CREATE);

	if (known)
		*known = owner;
	bpf_map_update_elem(&owned_cookie, &cookie, &owner, 0);
	change(&all.socket_changes);
}

static inline int is_followed(u32 tgid)
{
	return bpf_map_lookup_elem(&followed, &tgid) != 0;
}

/* The owner of what the task that runs makes; NOBODY of tasks that are not measured. */
static inline u32 owner_by_task(void)
{
	if (targ.owns == OF_HOLDERS)
		return place_of_task(bpf_get_current_task_btf());
	if (targ.owns == OF_THREADS)
		return holder_of(0, bpf_get_current_task_btf());
	return is_followed(bpf_get_current_pid_tgid() >> 32) ? COMMAND : NOBODY;
}

SEC("cgroup/sock_create")
int owned_create(struct bpf_sock *sk)
{
	u32 owner = owner_by_task();

	if (owner)
		adopt(sk, bpf_get_socket_cookie(sk), owner);
	else /* Another's socket may have been here. */
		change(&all.socket_changes);
	return 1;
}

SEC("cgroup/sock_release")
int owned_release(struct bpf_sock *sk)
{
	u64 cookie = bpf_get_socket_cookie(sk);

	bpf_map_delete_elem(&owned_cookie, &cookie);
	change(&all.socket_changes);
	return 1;
}

/* The command connects: its port is known from here on, before the other end's listener hears of it. */
SEC("sockops")
int owned_connect(struct bpf_sock_ops *ops)
{
	u64 cookie, key;
	u32 *owner, local = ops->local_ip4, remote = ops->remote_ip4, words[4];

	if (targ.owns != OF_COMMAND || ops->op != TCP_CONNECT_CB)
		return 1;
	cookie = bpf_get_socket_cookie(ops);
	owner = bpf_map_lookup_elem(&owned_cookie, &cookie);
	if (!owner || *owner != COMMAND)
		return 1;
	if (ops->family == AF_INET6) {
		WORDS(words, ops->local_ip6);
		local = folded(words);
		WORDS(words, ops->remote_ip6);
		remote = folded(words);
	}
	key = pair(end_of(local, ops->local_port), end_of(remote, __builtin_bswap32(ops->remote_port)));
	bpf_map_update_elem(&owned_pair, &key, owner, 0);
	return 1;
}

static inline u32 namespace_of(struct sock___owner *sk)
{
	return sk->__sk_common.skc_net.net->ns.inum;
}

/* A socket of a process gets a port: as a listener, or when it connects. */
static inline void name_port(struct sock___owner *sk, u32 *owner, u32 port)
{
	u32 place = place_with(*owner, port, namespace_of(sk));
	u64 cookie = bpf_get_socket_cookie(sk);

	*owner = place;
	bpf_map_update_elem(&owned_cookie, &cookie, &place, 0);
}

static inline u32 port_asked(struct sock___owner *sk)
{
	return ASKS | __builtin_bswap16(sk->__sk_common.skc_dport);
}

static inline void owned_state_of_holder(struct sock___owner *sk, u32 *owner, u32 state)
{
	u64 cookie;

	if (!owner)
		return;
	if (state == LISTEN) {
		listen_on(sk->__sk_common.skc_num, namespace_of(sk));
		name_port(sk, owner, sk->__sk_common.skc_num);
	} else if (state == SYN_SENT) {
		name_port(sk, owner, port_asked(sk));
	} else {
		cookie = bpf_get_socket_cookie(sk);
		bpf_map_update_elem(&owned_cookie, &cookie, owner, 0);
	}
}

/* What was accepted has inherited its owner; TCP closes after the application. Without programs of cgroups a socket has its owner
 * from when a task connects or listens. */
static inline int take_state(u64 *ctx)
{
	struct sock___owner *sk = (void *)ctx[0];
	u64 cookie, key, state = ctx[2];
	u32 *owner, peer = PEER, maker, gets_port = state == LISTEN || state == SYN_SENT;

	if (targ.owns != OF_HOLDERS && !targ.probes)
		gets_port = 0;
	if (state != ESTABLISHED && state != CLOSE && !gets_port)
		return 0;
	owner = bpf_sk_storage_get(&owned_socket, sk, 0, 0);
	if (targ.probes && gets_port && !owner && (maker = owner_by_task())) {
		adopt(sk, bpf_get_socket_cookie(sk), maker);
		owner = bpf_sk_storage_get(&owned_socket, sk, 0, 0);
	}
	if (state == CLOSE) {
		cookie = bpf_get_socket_cookie(sk);
		if (owner)
			bpf_map_delete_elem(&owned_cookie, &cookie);
		return 0;
	}
	if (targ.owns != OF_COMMAND) {
		owned_state_of_holder(sk, owner, state);
		return 0;
	}
	if (gets_port)
		return 0;
	key = pair_of(sk);
	if (owner && *owner == COMMAND) {
		cookie = bpf_get_socket_cookie(sk);
		bpf_map_update_elem(&owned_cookie, &cookie, owner, 0);
		bpf_map_update_elem(&owned_pair, &key, owner, 0);
	} else if (bpf_map_lookup_elem(&owned_pair, &key)) {
		cookie = bpf_get_socket_cookie(sk);
		bpf_sk_storage_get(&owned_socket, sk, &peer, STORAGE_CREATE);
		bpf_map_update_elem(&owned_cookie, &cookie, &peer, 0);
	}
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int owned_state(u64 *ctx)
{
	u64 state = ctx[2];

	take_state(ctx);
	/* After CLOSE another socket may be where this one was. */
	if (state <= SYN_SENT || state == CLOSE || state == LISTEN)
		change(&all.socket_changes);
	return 0;
}

/* The port of a socket whose beginning was not seen. Where nobody listens, services have the lower port. */
static inline u32 port_of(struct sock___owner *sk, u32 state, u32 netns)
{
	u32 local = sk->__sk_common.skc_num, remote = __builtin_bswap16(sk->__sk_common.skc_dport);

	if (state == LISTEN)
		listen_on(local, netns);
	else if (!remote)
		return 0;
	else if (!is_listened(local, netns) && remote < local)
		return ASKS | remote;
	return local;
}

/* Between vfork and exec a process has its parent's memory and copies of its files. */
static inline int is_in_vfork(struct task_struct *task)
{
	struct task_struct *parent = task->real_parent;

	return task->mm && parent->mm == task->mm && parent->tgid != task->tgid;
}

/* A socket that a process holds. A listener that several hold is the first one's. */
static inline void adopt_for_holder(struct task_struct *task, struct sock___owner *sk)
{
	u32 netns = namespace_of(sk), port, place = place_of_task(task), tgid = task->tgid;
	u32 *known = bpf_sk_storage_get(&owned_socket, sk, 0, 0);
	struct Holder *holder = known ? holder_at(*known) : 0;
	u8 state = sk->__sk_common.skc_state;

	if (holder && (state == LISTEN || holder->tgid == tgid))
		return;
	port = holder ? holder->port : port_of(sk, state, netns);
	adopt(sk, bpf_get_socket_cookie(sk), place_with(place, port, netns));
}

/* Sockets that there were before: of processes that are followed, or of all. */
SEC("iter/task_file")
int owned_files(struct iter_task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct socket___owner *socket;
	void *file = ctx->file;
	struct sock___owner *sk;
	u32 owner = COMMAND;
	u64 key;

	if (!task || !file || (targ.owns != OF_HOLDERS && !is_followed(task->tgid)))
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk || (sk->__sk_common.skc_family != AF_INET && sk->__sk_common.skc_family != AF_INET6))
		return 0;
	if (targ.owns == OF_HOLDERS) {
		if (!is_in_vfork(task))
			adopt_for_holder(task, sk);
		return 0;
	}
	adopt(sk, bpf_get_socket_cookie(sk), COMMAND);
	if (sk->__sk_common.skc_state == ESTABLISHED) {
		key = pair_of(sk);
		bpf_map_update_elem(&owned_pair, &key, &owner, 0);
	}
	return 0;
}
