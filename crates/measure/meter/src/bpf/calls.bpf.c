/* Sends and receives on internet sockets of the processes in `followed`, by whichever system call: write and read are
 * among them. Not splice out of a socket. Pages that sendfile and splice send are counted a second time, as sends by reference.
 * calls.rs reads the cells. */
#include "core.h"
#include "calls.layout.h"

#define AF_INET 2
#define AF_INET6 10

struct sock___calls {
	struct {
		u16 skc_family;
	} CORE __sk_common;
} CORE;

struct socket___calls {
	struct sock___calls *sk;
} CORE;

static struct socket___calls *(*bpf_sock_from_file)(void *file) = (void *)162;

/* That of `exact`. */
#define BPF_MAP_TYPE_HASH 1
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u32);
} followed SEC(".maps");

struct Cell cells[MAX_CPUS] = {};

static inline int count(struct sock___calls *sk, s32 bytes, u32 place)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32, cpu = bpf_get_smp_processor_id();
	u16 family = sk->__sk_common.skc_family;

	if (cpu >= MAX_CPUS || (family != AF_INET && family != AF_INET6) || !bpf_map_lookup_elem(&followed, &tgid))
		return 0;
	__sync_fetch_and_add(&cells[cpu].counts[place], 1);
	/* An error is negative. */
	if (bytes > 0)
		__sync_fetch_and_add(&cells[cpu].counts[place + 1], bytes);
	return 0;
}

SEC("tp_btf/sock_send_length")
int called_send(u64 *ctx)
{
	return count((void *)ctx[0], ctx[1], SENDS);
}

SEC("tp_btf/sock_recv_length")
int called_receive(u64 *ctx)
{
	return count((void *)ctx[0], ctx[1], RECEIVES);
}

/* Since Linux 6.5. Up to 16 pages of a pipe, which sendfile has, too. */
SEC("fexit/splice_to_socket")
int called_splice(u64 *ctx)
{
	struct socket___calls *socket = bpf_sock_from_file((void *)ctx[1]);
	struct sock___calls *sk = socket ? socket->sk : 0;

	return sk ? count(sk, ctx[5], REFERENCE_SENDS) : 0;
}
