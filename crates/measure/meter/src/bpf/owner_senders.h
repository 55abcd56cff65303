/* What a softirq sends of itself, by the functions that send: TCP's timers and small queues, and queueing disciplines. They run
 * seldom, and net_dev_start_xmit for each packet of the host, mostly in a task: that costs a 1-byte transaction 1 %. */

struct timer_list {
	void *function;
} CORE;

struct list_head {
	struct list_head *next;
} CORE;

/* Since 6.19 or so the first is in struct sock, and the last in inet_connection_sock. */
struct inet_connection_sock {
	struct timer_list icsk_retransmit_timer, icsk_delack_timer, icsk_keepalive_timer;
} CORE;

struct sock___timers {
	struct timer_list tcp_retransmit_timer, sk_timer;
} CORE;

struct request_sock {
	struct timer_list rsk_timer;
} CORE;

struct tcp_sock___senders {
	struct list_head tsq_node;
} CORE;

struct work_struct {
	void *func;
} CORE;

struct tsq_work {
	struct list_head head;
} CORE;

struct sk_buff___senders {
	struct sk_buff___senders *next;
	struct sock___owner *sk;
} CORE;

/* The owner of a socket by its address as a number: timers and queues show no more. */
static inline u32 owner_at(u64 address)
{
	u64 cookie = 0;

	bpf_probe_read_kernel(&cookie, sizeof cookie, &((struct sock___owner *)address)->__sk_common.skc_cookie);
	return owner_by(cookie, NEIGHBOUR);
}

/* Ends what was before in this softirq: what follows has no owner yet. The first has what was before it, too. */
static inline void end_turn(struct Cell *cell)
{
	if (cell->owner || cell->segments)
		tick(cell);
	if (cell->queued)
		share(cell);
	else if (cell->segments)
		cell->pot = 0;
	cell->owner = cell->segments = 0;
}

/* TCP's timers: retransmission, loss probe, delayed ACK, keepalive, SYN-ACK. What other timers do is the host's. */
SEC("tp_btf/timer_expire_entry")
int owned_sender_timer(u64 *ctx)
{
	struct timer_list *timer = (void *)ctx[0];
	u64 function = (u64)timer->function, at = (u64)timer, sk = 0;
	struct Cell *cell = mine();

	if (!cell || running(cell) != SOFTIRQ_TIMER)
		return 0;
	if (function == targ.write_timer)
		sk = at - (HAS(inet_connection_sock, icsk_retransmit_timer) ? OFFSET(inet_connection_sock, icsk_retransmit_timer)
									   : OFFSET(sock___timers, tcp_retransmit_timer));
	else if (function == targ.delack_timer)
		sk = at - OFFSET(inet_connection_sock, icsk_delack_timer);
	else if (function == targ.keepalive_timer)
		sk = at - (HAS(inet_connection_sock, icsk_keepalive_timer) ? OFFSET(inet_connection_sock, icsk_keepalive_timer)
									  : OFFSET(sock___timers, sk_timer));
	else if (function == targ.syn_ack_timer)
		bpf_probe_read_kernel(&sk, sizeof sk,
				      &((struct sock___owner *)(at - OFFSET(request_sock, rsk_timer)))->__sk_common.skc_listener);
	if (!sk && !cell->owner) {
		cell->segments = 1;
		return 0;
	}
	begin(cell);
	end_turn(cell);
	bill(cell, sk ? owner_at(sk) : NOBODY);
	cell->segments = !sk;
	end(cell);
	return 0;
}

/* TCP small queues: the sockets that may send again share what that takes. */
SEC("tp_btf/workqueue_execute_start")
int owned_sender_queue(u64 *ctx)
{
	struct work_struct *work = (void *)ctx[0];
	u64 function = (u64)work->func, head, next = 0;
	struct Cell *cell = mine();

	if (!cell || !is_softirq(running(cell)))
		return 0;
	begin(cell);
	end_turn(cell);
	if (function == targ.tsq_work) {
		head = (u64)work + OFFSET(tsq_work, head);
		bpf_probe_read_kernel(&next, sizeof next, (void *)head);
		for (u32 i = 0; i < QUEUED && next && next != head; i++) {
			cell->queue[i] = owner_at(next - OFFSET(tcp_sock___senders, tsq_node));
			cell->queued = i + 1;
			bpf_probe_read_kernel(&next, sizeof next, (void *)next);
		}
	}
	cell->segments = 1;
	end(cell);
	return 0;
}

/* A queueing discipline hands packets on, which share what follows. */
SEC("tp_btf/qdisc_dequeue")
int owned_sender_packets(u64 *ctx)
{
	struct sk_buff___senders *skb = (void *)ctx[3];
	struct Cell *cell;
	u32 owner;

	if (!skb)
		return 0;
	cell = mine();
	/* In NET_RX they are sent for the packet in hand. */
	if (!cell || !is_softirq(running(cell)) || running(cell) == SOFTIRQ_NET_RX)
		return 0;
	begin(cell);
	end_turn(cell);
	for (u32 i = 0; i < QUEUED && skb; i++, skb = skb->next) {
		owner = owner_of(skb->sk);
		cell->queue[i] = owner;
		cell->queued = i + 1;
	}
	cell->segments = 1;
	end(cell);
	return 0;
}
