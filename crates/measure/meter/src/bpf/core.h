/* What our programs need of the kernel: the few fields read, relocated when loaded (CO-RE), and the
 * helpers called, by their numbers in uapi/linux/bpf.h. No vmlinux.h and no libbpf header, so that
 * an object depends on this folder and on clang alone. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

#define SEC(name) __attribute__((section(name), used))
#define CORE __attribute__((preserve_access_index))
#define inline inline __attribute__((always_inline))
/* The compiler keeps the order of loads and stores across it. */
#define barrier() asm volatile("" ::: "memory")

/* Fields of a map's definition, which libbpf reads from the object's type information. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) type *name

struct task_struct {
	int pid, tgid;
	u32 flags;
	u32 policy;
	void *mm;
	struct task_struct *real_parent;
	char comm[16];
} CORE;

/* Its state, before and since Linux 5.14. */
struct task_struct___before_5_14 {
	long state;
} CORE;

struct task_struct___state {
	u32 __state;
} CORE;

struct ns_common {
	u32 inum;
} CORE;

struct net {
	struct ns_common ns;
} CORE;

typedef struct {
	struct net *net;
} CORE possible_net_t;

struct net_device {
	possible_net_t nd_net;
} CORE;

typedef struct {
	int owned;
} CORE socket_lock_t;

struct sock {
	socket_lock_t sk_lock;
} CORE;

struct tcp_sock {
	u32 mss_cache, rcv_wnd, rcv_wup;
} CORE;

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned char *head;
	u32 len, end;
	u16 protocol, network_header, mac_header;
} CORE;

struct hrtimer {
	u8 is_soft;
} CORE;

struct skb_shared_info {
	u8 nr_frags;
	u16 gso_size, gso_segs;
} CORE;

static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*bpf_get_current_task)(void) = (void *)35;
static long (*bpf_get_current_comm)(void *name, u32 size) = (void *)16;
static long (*bpf_get_stack)(void *ctx, void *to, u32 size, u64 flags) = (void *)67;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static struct task_struct *(*bpf_get_current_task_btf)(void) = (void *)158;

/* Helpers that a kernel may lack. A program asks before it calls one: the verifier does not look at a branch that is never taken. */
enum bpf_func_id { BPF_FUNC_get_current_task_btf = 158 };
#define ENUM_VALUE_EXISTS 0
#define HAS_HELPER(name) __builtin_preserve_enum_value(*(enum bpf_func_id *)BPF_FUNC_##name, ENUM_VALUE_EXISTS)

/* Kinds of __builtin_preserve_field_info (clang's BPF_FIELD_BYTE_OFFSET and _EXISTENCE). */
#define FIELD_OFFSET 0
#define FIELD_EXISTS 2
#define OFFSET(type, field) __builtin_preserve_field_info(((struct type *)0)->field, FIELD_OFFSET)
#define HAS(type, field) __builtin_preserve_field_info(((struct type *)0)->field, FIELD_EXISTS)

#define PF_KTHREAD 0x00200000
#define SCHED_BATCH 3
#define SCHED_IDLE 5

/* Eight characters as the number that they are in memory of a little-endian CPU. */
#define WORD(a, b, c, d, e, f, g, h) ((u64)(a) | (u64)(b) << 8 | (u64)(c) << 16 | (u64)(d) << 24 \
	| (u64)(e) << 32 | (u64)(f) << 40 | (u64)(g) << 48 | (u64)(h) << 56)

/* Kernel threads that carry network work, by the first characters of their names. */
enum kthread { OTHER_THREAD, KSOFTIRQD_THREAD, KWORKER_THREAD, NAPI_THREAD, USER_THREAD };

static inline enum kthread kthread_named(u64 name)
{
	if (name == WORD('k', 's', 'o', 'f', 't', 'i', 'r', 'q'))
		return KSOFTIRQD_THREAD;
	if (name == WORD('k', 'w', 'o', 'r', 'k', 'e', 'r', '/'))
		return KWORKER_THREAD;
	if ((name & 0xffffffffffULL) == WORD('n', 'a', 'p', 'i', '/', 0, 0, 0))
		return NAPI_THREAD;
	return OTHER_THREAD;
}

static inline enum kthread kthread_of(struct task_struct *task)
{
	const char *comm = task->comm;

	/* Or clang folds the offset of comm into loads that it then forgets to relocate. */
	asm volatile("" : "+r"(comm));
	return kthread_named(*(u64 *)comm);
}

/* The kind of the thread that runs. Linux 5.10 shows programs its address only, so that they copy what they ask. */
static inline enum kthread running_thread(void)
{
	struct task_struct *task;
	u64 name = 0;
	u32 flags = 0;

	if (HAS_HELPER(get_current_task_btf)) {
		task = bpf_get_current_task_btf();
		return task->flags & PF_KTHREAD ? kthread_of(task) : USER_THREAD;
	}
	task = (void *)bpf_get_current_task();
	bpf_probe_read_kernel(&flags, sizeof(flags), &task->flags);
	bpf_probe_read_kernel(&name, sizeof(name), &task->comm);
	return flags & PF_KTHREAD ? kthread_named(name) : USER_THREAD;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
