// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"coelan.io/coelan/internal/intent"
)

// Guard keeps packets of pods, and of hosts that are not nodes, from the ports by which nodes
// talk to each other. A receiver knows a node by its address only, and a pod's packet to another
// node leaves with just that once it is masqueraded, so the sender's kernel has to drop it before.
type Guard struct {
	// Nodes are the addresses of all nodes, this one's included.
	Nodes []netip.Addr
	// Tunnel is the UDP port of the encapsulation in use; 0: there is none.
	Tunnel uint16
	// TunnelToKernel says that this node's kernel takes tunnel packets in. Otherwise Open vSwitch
	// reads them from the wire, and the kernel's own tunnels, if it has some, are another's.
	TunnelToKernel bool
	// Ports are what the nodes' processes serve for each other.
	Ports []NodePort
}

// NodePort is a port of the nodes themselves.
type NodePort struct {
	Protocol intent.Protocol
	Port     uint16
}

// Names of the sets of the guard.
const (
	guardedPorts  = "guarded"  // that pods must not reach on nodes
	receivedPorts = "received" // that this node's kernel takes from nodes only
)

// ctStatusDNAT is IPS_DST_NAT: the connection's destination was translated.
const ctStatusDNAT = 1 << 5

// ctReply is IP_CT_DIR_REPLY.
const ctReply = 1

func (g Guard) sets() []set {
	prefixes := make([]netip.Prefix, 0, len(g.Nodes))
	for _, a := range g.Nodes {
		prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
	}
	guarded, received := map[string]string{}, map[string]string{}
	for _, p := range g.Ports {
		guarded[service(p.Protocol, p.Port)] = ""
		received[service(p.Protocol, p.Port)] = ""
	}
	if g.Tunnel != 0 {
		guarded[service(intent.UDP, g.Tunnel)] = ""
		if g.TunnelToKernel {
			received[service(intent.UDP, g.Tunnel)] = ""
		}
	}
	key := concat(nftables.TypeInetProto, nftables.TypeInetService)
	return append(addressSets("nodes", prefixes),
		set{name: guardedPorts, key: key, kind: keys, elements: guarded},
		set{name: receivedPorts, key: key, kind: keys, elements: received})
}

// chains are asked after the translation of destinations and before that of sources, so that what
// a Service, a node port or a host port leads to a node is seen as what it has become, and still
// from its true source.
//
// Later fragments tell no port. That the rules ask conntrack has the kernel put fragments together
// before the first of its chains, whether or not anything is masqueraded or translated.
func (g Guard) chains(gateway string) []chain {
	priority, filter := *nftables.ChainPriorityFilter, nftables.ChainTypeFilter
	var forward, input, post []rule
	if g.Tunnel != 0 {
		forward = append(forward, anyFamily("a reply to the tunnel's port: return",
			udpTo(g.Tunnel), isReply(), verdict(expr.VerdictReturn)))
	}
	input = append(input,
		anyFamily("iifname lo return", device(expr.MetaKeyIIFNAME, expr.CmpOpEq, "lo"), verdict(expr.VerdictReturn)),
		anyFamily("tcp, a reply: return", l4proto(intent.TCP), isReply(), verdict(expr.VerdictReturn)),
		anyFamily("from pods @guarded drop", protocolAndPort(0), lookup(expr.Lookup{SetName: guardedPorts}),
			device(expr.MetaKeyIIFNAME, expr.CmpOpEq, gateway), drop()))
	post = append(post, anyFamily("tcp, a reply: return", l4proto(intent.TCP), isReply(), verdict(expr.VerdictReturn)))
	headers := []header{header4, header6}
	for _, f := range headers {
		post = append(post, g.toNodes(f))
		input = append(input, g.fromStrangers(f)...)
		if g.Tunnel != 0 {
			forward = append(forward, g.tunneled(f, gateway)...)
		}
	}
	if g.Tunnel != 0 {
		post = append(post, anyFamily("a reply: return", isReply(), verdict(expr.VerdictReturn)))
		for _, f := range headers {
			post = append(post, g.tunnelFromPods(f))
		}
	}
	return []chain{
		baseChain("guard-forward", filter, nftables.ChainHookForward, priority, forward),
		baseChain("guard-input", filter, nftables.ChainHookInput, priority, input),
		baseChain("guard-postrouting", filter, nftables.ChainHookPostrouting, priority, post),
	}
}

// untracked keep what nodes send each other by tunnels from this kernel's conntrack. Nothing asks
// for these connections: each direction has a source port of its own, so none is ever answered.
// What pods send is tracked, whatever its port, since what guards from it asks conntrack.
func (g Guard) untracked() []rule {
	if g.Tunnel == 0 || !g.TunnelToKernel {
		return nil
	}
	var rules []rule
	for _, f := range []header{header4, header6} {
		nodes := func(offset uint32) []expr.Any {
			return append(f.load(offset, 0), lookup(expr.Lookup{SetName: "nodes" + f.name})...)
		}
		rules = append(rules, f.rule(
			fmt.Sprintf("udp dport %d %s saddr @nodes%s %s daddr @nodes%s notrack", g.Tunnel, f.ip, f.name, f.ip, f.name),
			udpTo(g.Tunnel), nodes(f.src), nodes(f.dst), one(&expr.Notrack{})))
	}
	return rules
}

// tunneled are the rules for what is forwarded to the tunnel's port of anything but a
// pod. Not only the known addresses of nodes are meant: one may have others, by which
// tunnels take packets, too.
func (g Guard) tunneled(f header, gateway string) []rule {
	to := func() []expr.Any {
		return slices.Concat(udpTo(g.Tunnel), f.load(f.dst, 0),
			lookup(expr.Lookup{SetName: "direct" + f.name, Invert: true}))
	}
	at := fmt.Sprintf("udp dport %d %s daddr != @direct%s drop", g.Tunnel, f.ip, f.name)
	return []rule{
		f.rule("iifname "+gateway+" "+at, device(expr.MetaKeyIIFNAME, expr.CmpOpEq, gateway), to(), drop()),
		// A Service of kube-proxy leads clients from outside there, masqueraded behind this node.
		f.rule("ct status dnat "+at, to(), translatedTo(), drop()),
	}
}

// tunnelFromPods is for packets that kube-proxy's IPVS sends on: these are not forwarded.
func (g Guard) tunnelFromPods(f header) rule {
	return f.rule(fmt.Sprintf("udp dport %d %s saddr @pods%s %s daddr != @direct%s drop", g.Tunnel, f.ip, f.name, f.ip,
		f.name),
		udpTo(g.Tunnel), f.load(f.src, 0), lookup(expr.Lookup{SetName: "pods" + f.name}),
		f.load(f.dst, 0), lookup(expr.Lookup{SetName: "direct" + f.name, Invert: true}), drop())
}

// toNodes drops what is for the nodes' own ports and not from a node. Answers of UDP are no
// exception: a pod could keep a connection alive here that the other node has forgotten.
func (g Guard) toNodes(f header) rule {
	return f.rule(fmt.Sprintf("@guarded %s daddr @nodes%s %s saddr != @nodes%s drop", f.ip, f.name, f.ip, f.name),
		protocolAndPort(0), lookup(expr.Lookup{SetName: guardedPorts}),
		f.load(f.dst, 0), lookup(expr.Lookup{SetName: "nodes" + f.name}),
		f.load(f.src, 0), lookup(expr.Lookup{SetName: "nodes" + f.name, Invert: true}), drop())
}

// fromStrangers drops what is not from a node, and what is for an address of this node that others
// do not know as one: they would not keep their pods from it.
func (g Guard) fromStrangers(f header) []rule {
	var all []rule
	for _, end := range []struct {
		name   string
		offset uint32
	}{{"saddr", f.src}, {"daddr", f.dst}} {
		all = append(all, f.rule(fmt.Sprintf("@received %s %s != @nodes%s drop", f.ip, end.name, f.name),
			protocolAndPort(0), lookup(expr.Lookup{SetName: receivedPorts}),
			f.load(end.offset, 0), lookup(expr.Lookup{SetName: "nodes" + f.name, Invert: true}), drop()))
	}
	return all
}

func anyFamily(text string, parts ...[]expr.Any) rule {
	return rule{text: text, exprs: slices.Concat(parts...)}
}

// drop counts what it drops, for operators.
func drop() []expr.Any {
	return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
}

func udpTo(port uint16) []expr.Any {
	const dport = 2
	return append(l4proto(intent.UDP),
		&expr.Payload{DestRegister: register(0), Base: expr.PayloadBaseTransportHeader, Offset: dport, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: binaryutil.BigEndian.PutUint16(port)})
}

// isReply does not match packets that conntrack does not know.
func isReply() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{ctReply}},
	}
}

func translatedTo() []expr.Any {
	mask, zero := binaryutil.NativeEndian.PutUint32(ctStatusDNAT), make([]byte, 4)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: register(0)},
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 4, Mask: mask, Xor: zero},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: zero},
	}
}
