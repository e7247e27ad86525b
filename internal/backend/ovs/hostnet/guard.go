// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
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
	// TunnelMark is the mark of the tunnel packets that Open vSwitch has this kernel send, and of
	// no others; 0: they have none.
	TunnelMark uint32
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
	nodes4, nodes6 := map[string]string{}, map[string]string{}
	for _, a := range g.Nodes {
		if a.Is4() {
			nodes4[string(a.AsSlice())] = ""
		} else {
			nodes6[string(a.AsSlice())] = ""
		}
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
	return []set{
		{name: "nodes4", key: nftables.TypeIPAddr, kind: keys, elements: nodes4},
		{name: "nodes6", key: nftables.TypeIP6Addr, kind: keys, elements: nodes6},
		{name: guardedPorts, key: key, kind: keys, elements: guarded},
		{name: receivedPorts, key: key, kind: keys, elements: received},
	}
}

// chains are asked after the translation of destinations and before that of sources, so that what
// a Service, a node port or a host port leads to a node is seen as what it has become, and still
// from its true source.
//
// Later fragments tell no port. That the rules ask conntrack has the kernel put fragments together
// before the first of its chains, whether or not anything is masqueraded or translated.
//
// All packets of tunnels go through the chains of input and output, each of which costs them some
// hundred instructions. So there is one for each, and none behind the routing of what leaves.
func (g Guard) chains(gateway string) []chain {
	filter, raw := nftables.ChainTypeFilter, *nftables.ChainPriorityRaw
	tcpReply := anyFamily("tcp, a reply: return", l4proto(intent.TCP), isReply(), verdict(expr.VerdictReturn))
	forward := []rule{tcpReply, notIn(guardedPorts)}
	input := slices.Concat(g.settled(), []rule{
		anyFamily("iif lo return", loopback(), verdict(expr.VerdictReturn)),
		tcpReply,
		anyFamily("from pods @guarded drop", device(expr.MetaKeyIIFNAME, expr.CmpOpEq, gateway),
			protocolAndPort(0), lookup(expr.Lookup{SetName: guardedPorts}), drop()),
		notIn(receivedPorts),
	})
	// Before conntrack, only what IPVS sends on has a connection.
	output := slices.Concat(g.untrackedOutput(), unsaid(gateway), []rule{
		anyFamily("ct state invalid,untracked return", notSentOn(), verdict(expr.VerdictReturn)),
		tcpReply,
		notIn(guardedPorts),
	})
	headers := []header{header4, header6}
	for _, f := range headers {
		input = append(input, g.fromStrangers(f)...)
		forward, output = append(forward, g.toNodes(f)), append(output, g.toNodes(f))
	}
	if g.Tunnel != 0 {
		reply := anyFamily("a reply: return", isReply(), verdict(expr.VerdictReturn))
		forward, output = append(forward, reply), append(output, reply)
		for _, f := range headers {
			forward = append(forward, g.tunneled(f, gateway)...)
			forward, output = append(forward, g.tunnelFromPods(f)), append(output, g.tunnelFromPods(f))
		}
	}
	return []chain{
		baseChain("guard-forward", filter, nftables.ChainHookForward, *nftables.ChainPriorityFilter, forward),
		baseChain("guard-input", filter, nftables.ChainHookInput, *nftables.ChainPriorityFilter, input),
		baseChain("guard-output", filter, nftables.ChainHookOutput, raw, output),
	}
}

// notIn ends a chain for what is not for one of a set's ports.
func notIn(set string) rule {
	return anyFamily("!= @"+set+" return", protocolAndPort(0), lookup(expr.Lookup{SetName: set, Invert: true}),
		verdict(expr.VerdictReturn))
}

// pass begins chains of what leaves through which all packets of tunnels go, and which are not for
// these: each rule costs them more than this one.
func (g Guard) pass() []rule {
	if g.TunnelMark == 0 {
		return nil
	}
	return []rule{anyFamily(g.markText()+" return", g.marked(), verdict(expr.VerdictReturn))}
}

// passArriving is the same for what arrives and has the mark of untrackedInput.
func (g Guard) passArriving() []rule {
	if !g.tunnelsArrive() {
		return nil
	}
	return []rule{anyFamily(arrivedText+" return", arrived(), verdict(expr.VerdictReturn))}
}

// passText tells the rules of pass and passArriving from others.
func (g Guard) passText() string {
	var all []string
	for _, r := range slices.Concat(g.pass(), g.passArriving()) {
		all = append(all, r.text)
	}
	return strings.Join(all, "; ")
}

func (g Guard) markText() string { return fmt.Sprintf("meta mark %#x", g.TunnelMark) }

// tunnelsArrive says that this kernel takes tunnel packets in.
func (g Guard) tunnelsArrive() bool { return g.Tunnel != 0 && g.TunnelToKernel }

// loopback says that the packet comes from the interface lo. Its index is always 1.
func loopback() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIF, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: binaryutil.NativeEndian.PutUint32(1)},
	}
}

// marked says that Open vSwitch sends the packet into a tunnel.
func (g Guard) marked() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: binaryutil.NativeEndian.PutUint32(g.TunnelMark)},
	}
}

// untrackedInput keeps what other nodes send by tunnels from this kernel's conntrack, and
// untrackedOutput what this node sends. Nothing asks for these connections: each direction has a
// source port of its own, so none is ever answered. What pods send is tracked, whatever its port,
// since what guards from it asks conntrack.
//
// What arrives is marked, so that its addresses are looked up once. The mark ends in settled.
func (g Guard) untrackedInput(gateway string) []rule {
	if !g.tunnelsArrive() {
		return nil
	}
	return g.betweenNodes("iifname != "+gateway+" ",
		fmt.Sprintf("meta mark set meta mark or %#x ", reserved.TunnelMark),
		device(expr.MetaKeyIIFNAME, expr.CmpOpNeq, gateway), setMark(^uint32(0), reserved.TunnelMark))
}

func (g Guard) untrackedOutput() []rule {
	if g.TunnelMark != 0 {
		return []rule{anyFamily(g.markText()+" notrack return", g.marked(), one(&expr.Notrack{}),
			verdict(expr.VerdictReturn))}
	}
	if !g.tunnelsArrive() {
		return nil
	}
	return g.betweenNodes("", "", nil, nil)
}

// betweenNodes takes the tunnel packets of nodes to nodes from conntrack, and from the rest of the
// chain.
func (g Guard) betweenNodes(whenText, thenText string, when, then []expr.Any) (rules []rule) {
	for _, f := range []header{header4, header6} {
		nodes := func(offset uint32) []expr.Any {
			return append(f.load(offset, 0), lookup(expr.Lookup{SetName: "nodes" + f.name})...)
		}
		rules = append(rules, f.rule(
			fmt.Sprintf("udp dport %d %s%s saddr @nodes%s %s daddr @nodes%s notrack %sreturn",
				g.Tunnel, whenText, f.ip, f.name, f.ip, f.name, thenText),
			udpTo(g.Tunnel), when, nodes(f.src), nodes(f.dst), one(&expr.Notrack{}), then, verdict(expr.VerdictReturn)))
	}
	return rules
}

// settled ends the way of what untrackedInput has marked, and its mark: Open vSwitch, which it is
// for, would match it, and pass it on to the host with what the tunnel brings.
func (g Guard) settled() []rule {
	if !g.tunnelsArrive() {
		return nil
	}
	const others = ^uint32(reserved.TunnelMark)
	return []rule{anyFamily(fmt.Sprintf("%s meta mark set meta mark and %#x return", arrivedText, others),
		arrived(), setMark(others, 0), verdict(expr.VerdictReturn))}
}

var arrivedText = fmt.Sprintf("meta mark and %#x", reserved.TunnelMark)

// arrived says that a packet has the mark of untrackedInput, among others'.
func arrived() []expr.Any {
	return append(one(&expr.Meta{Key: expr.MetaKeyMARK, Register: register(0)}), hasBits(reserved.TunnelMark)...)
}

// hasBits says that a mark that was loaded has one of these bits.
func hasBits(bits uint32) []expr.Any {
	return []expr.Any{
		setBits(bits, 0),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: make([]byte, 4)},
	}
}

// setBits keeps the bits of keep of a mark that was loaded, and sets those of set.
func setBits(keep, set uint32) expr.Any {
	return &expr.Bitwise{
		SourceRegister: register(0), DestRegister: register(0), Len: 4,
		Mask: binaryutil.NativeEndian.PutUint32(keep &^ set), Xor: binaryutil.NativeEndian.PutUint32(set),
	}
}

// setMark keeps the bits of keep of the mark, and sets those of set.
func setMark(keep, set uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register(0)},
		setBits(keep, set),
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register(0), SourceRegister: true},
	}
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

// toNodes drops what is for the nodes' own ports, which come here alone, and not from a node.
// Answers of UDP are no exception: a pod could keep a connection alive here that the other node has
// forgotten.
func (g Guard) toNodes(f header) rule {
	return f.rule(fmt.Sprintf("%s daddr @nodes%s %s saddr != @nodes%s drop", f.ip, f.name, f.ip, f.name),
		f.load(f.dst, 0), lookup(expr.Lookup{SetName: "nodes" + f.name}),
		f.load(f.src, 0), lookup(expr.Lookup{SetName: "nodes" + f.name, Invert: true}), drop())
}

// fromStrangers drops what is not from a node, and what is for an address of this node that others
// do not know as one: they would not keep their pods from it. Only the received ports come here.
func (g Guard) fromStrangers(f header) []rule {
	var all []rule
	for _, end := range []struct {
		name   string
		offset uint32
	}{{"saddr", f.src}, {"daddr", f.dst}} {
		all = append(all, f.rule(fmt.Sprintf("%s %s != @nodes%s drop", f.ip, end.name, f.name),
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

// notSentOn says that conntrack has not seen a packet yet, or is not to.
func notSentOn() []expr.Any { return inState(expr.CtStateBitINVALID | expr.CtStateBitUNTRACKED) }

func translatedTo() []expr.Any {
	mask, zero := binaryutil.NativeEndian.PutUint32(ctStatusDNAT), make([]byte, 4)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: register(0)},
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 4, Mask: mask, Xor: zero},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: zero},
	}
}
