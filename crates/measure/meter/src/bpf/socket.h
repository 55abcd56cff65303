/* Sockets as eBPF programs of sockets and cgroups see them. */
#pragma once

/* uapi/linux/bpf.h, up to what is used. */
struct __sk_buff {
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
	u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family;
	u32 remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
	u64 flow_keys, tstamp;
	u32 wire_len, gso_segs;
	struct bpf_sock *sk __attribute__((aligned(8)));
};
#define ESTABLISHED 1
struct bpf_sock {
	u32 bound_dev_if, family, type, protocol, mark, priority, src_ip4, src_ip6[4], src_port;
	u16 dst_port, unused;
	u32 dst_ip4, dst_ip6[4], state;
};

static long (*bpf_skb_load_bytes)(const void *skb, u32 offset, void *to, u32 length) = (void *)26;
static u64 (*bpf_get_socket_cookie)(void *ctx) = (void *)46;
static struct bpf_sock *(*bpf_sk_fullsock)(struct bpf_sock *sk) = (void *)95;
static void *(*bpf_sk_storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;
