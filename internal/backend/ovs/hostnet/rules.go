// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/reserved"
)

// rule is one rule; text says in nft's language, for readers, what exprs do.
type rule struct {
	text  string
	exprs []expr.Any
}

// Positions in the network header (RFC 791, RFC 8200).
const (
	source4, destination4 = 12, 16
	source6, destination6 = 8, 24
	size4, size6          = 4, 16
)

// ICMP types that a host sends to a neighbor that has a shorter way (RFC 792, RFC 4861).
const (
	icmpRedirect   = 5
	icmpv6Redirect = 137
)

// chains are the table's first chains: masquerading, pods' packets that the kernel must not take,
// and what conntrack does not see. The userspace datapath reads the host's end of a pod's interface
// beside the kernel, not instead of it: what a pod sends to that end's MAC, or to broadcast, would
// reach the host, and by its routes any destination, past every flow.
func (s SNAT) chains(gateway string, g Guard) []chain {
	post := chain{Chain: &nftables.Chain{
		Name: "postrouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	}}
	if s.Enabled {
		post.rules = []rule{
			masquerade("ip", gateway, "pods4", "direct4", unix.NFPROTO_IPV4, source4, destination4, size4),
			masquerade("ip6", gateway, "pods6", "direct6", unix.NFPROTO_IPV6, source6, destination6, size6),
		}
	}
	pre := chain{
		Chain: &nftables.Chain{
			Name: "prerouting", Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw,
		},
		rules: slices.Concat([]rule{dropGroup("iifgroup", expr.MetaKeyIIFGROUP, reserved.LinkGroup)},
			g.untrackedInput(gateway), []rule{toLoopback(gateway)}),
	}
	return []chain{post, pre}
}

// unsaid is what the kernel must not say to pods. A redirect leaves when a packet goes out where it
// came in, as one from a pod to a Service does; the kernel has no setting against it for IPv6.
func unsaid(gateway string) []rule {
	return []rule{
		dropICMP("icmp", gateway, unix.IPPROTO_ICMP, icmpRedirect),
		dropICMP("icmpv6", gateway, unix.IPPROTO_ICMPV6, icmpv6Redirect),
		// Multicast listener reports, the last thing that the kernel says on these wires.
		dropGroup("oifgroup", expr.MetaKeyOIFGROUP, reserved.LinkGroup),
	}
}

// dropGroup drops what comes from, or goes to, the interfaces of a group.
func dropGroup(name string, key expr.MetaKey, group uint32) rule {
	return rule{
		text: fmt.Sprintf("%s %d drop", name, group),
		exprs: []expr.Any{
			&expr.Meta{Key: key, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(group)},
			&expr.Verdict{Kind: expr.VerdictDrop},
		},
	}
}

// masquerade hides pods behind the node for every destination outside of direct. Ports are taken at
// random, because two connections that choose the same one at the same time would lose one of them.
func masquerade(family, gateway, pods, direct string, proto byte, src, dst, size uint32) rule {
	return rule{
		text: family + " saddr @" + pods + " daddr != @" + direct + " oifname != " + gateway +
			" masquerade fully-random",
		exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: src, Len: size},
			&expr.Lookup{SourceRegister: 1, SetName: pods},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: dst, Len: size},
			&expr.Lookup{SourceRegister: 1, SetName: direct, Invert: true},
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: ifname(gateway)},
			&expr.Masq{FullyRandom: true},
		},
	}
}

func dropICMP(family, gateway string, proto, typ byte) rule {
	return rule{
		text: family + " type redirect oifname " + gateway + " drop",
		exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: ifname(gateway)},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{typ}},
			&expr.Verdict{Kind: expr.VerdictDrop},
		},
	}
}

// ifname is an interface's name as nftables compares it: IFNAMSIZ bytes, filled with zeros.
func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
