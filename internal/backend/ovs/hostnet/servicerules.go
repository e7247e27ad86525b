// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/reserved"
)

// header is where a family has its addresses, and how nftables calls it.
type header struct {
	name         string
	proto        byte
	ip           string
	src, dst, sz uint32
	addr         nftables.SetDatatype
}

var (
	header4 = header{"4", unix.NFPROTO_IPV4, "ip", source4, destination4, size4, nftables.TypeIPAddr}
	header6 = header{"6", unix.NFPROTO_IPV6, "ip6", source6, destination6, size6, nftables.TypeIP6Addr}
)

// A leftover kube-proxy has its chains at the usual priorities. The first chain that translates a
// connection is the last, so these come before.
var (
	dnatPriority   = *nftables.ChainPriorityNATDest - 10
	snatPriority   = *nftables.ChainPriorityNATSource - 10
	filterPriority = *nftables.ChainPriorityFilter - 10
)

// serviceChains are the rules of the families. byAddress is that of Services. The chains begin with
// what the Guard has for tunnels' packets. Those of which it only matters what is in one set are
// left out while sets are empty: even so they would cost each packet of a tunnel.
func serviceChains(gateway string, families []serviceFamily, byAddress bool, g Guard, sets []set) []chain {
	var incoming, outgoing, snat, reject, sources, wireSources, forwarded, wires, answers []rule
	wired := byAddress && holds(sets, "floating")
	for _, f := range families {
		dnat := f.dnatRules()
		if wired {
			incoming = append(incoming, f.wireRules(gateway)...)
			wires, answers = append(wires, f.markWire(gateway)), append(answers, f.markAnswer())
		}
		if byAddress {
			incoming = append(incoming, f.hostPreroutingRules(gateway)...)
			outgoing = append(outgoing, f.insideRules("", nil)...)
			snat = append(snat, f.hostSourceRule(gateway))
			sources = append(sources, f.everySourceRule())
		} else {
			incoming = append(incoming, f.outsideRules(gateway)...)
			sources = append(sources, f.sourceRule(gateway))
			wireSources = append(wireSources, f.wireSourceRule(gateway))
		}
		incoming, outgoing = append(incoming, dnat...), append(outgoing, dnat...)
		snat = append(snat, f.snatRules(gateway, byAddress)...)
		reject = append(reject, f.rejectRules()...)
		forwarded = append(forwarded, f.forwardedRule(gateway, byAddress))
	}
	nat, filter, mangle := nftables.ChainTypeNAT, nftables.ChainTypeFilter, *nftables.ChainPriorityMangle
	chains := []chain{
		baseChain("dnat-prerouting", nat, nftables.ChainHookPrerouting, dnatPriority, incoming),
		baseChain("dnat-output", nat, nftables.ChainHookOutput, dnatPriority, outgoing),
		baseChain("forwarded", filter, nftables.ChainHookForward, mangle, forwarded),
		baseChain("snat-postrouting", nat, nftables.ChainHookPostrouting, snatPriority, snat),
	}
	if wired {
		chains = append(chains,
			baseChain("wires-prerouting", filter, nftables.ChainHookPrerouting, mangle,
				slices.Concat(g.passArriving(), wires, answers)),
			baseChain("wires-output", nftables.ChainTypeRoute, nftables.ChainHookOutput, mangle,
				slices.Concat(g.pass(), answers)))
	}
	if holds(sets, "restricted") {
		chains = append(chains,
			baseChain("sources-prerouting", filter, nftables.ChainHookPrerouting, mangle,
				slices.Concat(g.passArriving(), sources, wireSources)),
			baseChain("sources-output", filter, nftables.ChainHookOutput, mangle, slices.Concat(g.pass(), sources)))
	}
	if holds(sets, "reject") {
		chains = append(chains,
			baseChain("reject-forward", filter, nftables.ChainHookForward, filterPriority, reject),
			baseChain("reject-output", filter, nftables.ChainHookOutput, filterPriority,
				slices.Concat(g.pass(), reject)))
	}
	return chains
}

// holds says whether a set has elements, of whichever family.
func holds(sets []set, name string) bool {
	return slices.ContainsFunc(sets, func(s set) bool {
		return (s.name == name+header4.name || s.name == name+header6.name) &&
			len(s.elements)+len(s.ranges) > 0
	})
}

func baseChain(name string, typ nftables.ChainType, hook *nftables.ChainHook, priority nftables.ChainPriority,
	rules []rule,
) chain {
	return chain{&nftables.Chain{Name: name, Type: typ, Hooknum: hook, Priority: &priority}, rules}
}

// dnatRules lead what the bridge does not know by its address to one that it does: node
// ports, and external addresses that may belong to another host except for the Service's
// port. What is led there whole is translated to itself, so that no other program's rules (a
// leftover kube-proxy's) translate it.
func (f serviceFamily) dnatRules() []rule {
	return []rule{
		f.externalRule("", nil),
		f.rule(fmt.Sprintf("fib daddr type local %s daddr @node%s meta l4proto . th dport @nodeports%s dnat to %s",
			f.ip, f.name, f.name, f.hop),
			local(), f.load(f.dst, 0), f.in("node"), protocolAndPort(0), f.in("nodeports"),
			immediate(f.hop), f.nat(expr.NAT{Type: expr.NATTypeDestNAT})),
		f.wholeRule("", nil),
	}
}

// externalRule leads external addresses, of clients that a condition picks, to what the bridge
// knows.
func (f serviceFamily) externalRule(when string, clients []expr.Any) rule {
	find := lookup(expr.Lookup{SetName: "external" + f.name, DestRegister: register(0), IsDestRegSet: true})
	return f.rule(fmt.Sprintf("%sdnat to %s daddr . meta l4proto . th dport map @external%s", when, f.ip, f.name),
		clients, f.frontend(), find, f.nat(expr.NAT{Type: expr.NATTypeDestNAT, RegProtoMin: register(f.words())}))
}

// wholeRule has an address stay that is led to the bridge whole.
func (f serviceFamily) wholeRule(when string, clients []expr.Any) rule {
	return f.rule(fmt.Sprintf("%s%s daddr @services%s dnat to %s daddr", when, f.ip, f.name, f.ip),
		clients, f.load(f.dst, 0), f.in("services"), f.nat(expr.NAT{Type: expr.NATTypeDestNAT}))
}

// snatRules give what goes to Services the gateway's address, so that answers come back here,
// unless the client's is to be preserved, which comes from the bridge if it is on the wire of a
// physical network; and clients that the bridge has masked that of the
// interface by which they leave the host. It is not masquerading, which forgets all connections
// whenever the interface goes down, as it does with ovs-vswitchd.
func (f serviceFamily) snatRules(gateway string, byAddress bool) []rule {
	wired, text := f.fromWire(gateway)
	if byAddress { // the address may be another one by now
		wired, text = f.ofWire(gateway)
	}
	return []rule{
		f.rule(fmt.Sprintf("oifname != %s %s saddr %s masquerade fully-random", gateway, f.ip, f.masked),
			device(expr.MetaKeyOIFNAME, expr.CmpOpNeq, gateway), f.load(f.src, 0), is(f.masked),
			one(&expr.Masq{FullyRandom: true})),
		f.rule(fmt.Sprintf("oifname %s %s saddr %s return", gateway, f.ip, f.gateway),
			device(expr.MetaKeyOIFNAME, expr.CmpOpEq, gateway), f.load(f.src, 0), is(f.gateway),
			verdict(expr.VerdictReturn)),
		f.rule(fmt.Sprintf(`oifname %s iifname != { "", %s } %s daddr . meta l4proto . th dport @preserve%s return`,
			gateway, gateway, f.ip, f.name),
			device(expr.MetaKeyOIFNAME, expr.CmpOpEq, gateway),
			device(expr.MetaKeyIIFNAME, expr.CmpOpNeq, ""), device(expr.MetaKeyIIFNAME, expr.CmpOpNeq, gateway),
			f.frontend(), f.in("preserve"), verdict(expr.VerdictReturn)),
		f.rule(fmt.Sprintf("oifname %s %s%s daddr . meta l4proto . th dport @preserve%s return", gateway, text, f.ip,
			f.name),
			device(expr.MetaKeyOIFNAME, expr.CmpOpEq, gateway), wired,
			f.frontend(), f.in("preserve"), verdict(expr.VerdictReturn)),
		f.rule(fmt.Sprintf("oifname %s %s daddr @services%s snat to %s fully-random", gateway, f.ip, f.name, f.gateway),
			device(expr.MetaKeyOIFNAME, expr.CmpOpEq, gateway), f.load(f.dst, 0), f.in("services"),
			immediate(f.gateway), f.nat(expr.NAT{Type: expr.NATTypeSourceNAT, FullyRandom: true})),
	}
}

// rejectRules refuse what has no endpoint anywhere. A connection that has got one keeps it;
// datagrams are refused in any case.
func (f serviceFamily) rejectRules() []rule {
	reset := &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}
	unreachable := &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}
	at := fmt.Sprintf("%s daddr . meta l4proto . th dport @reject%s reject with", f.ip, f.name)
	return []rule{
		f.rule("meta l4proto tcp ct state new "+at+" tcp reset", l4proto(intent.TCP), isNew(), f.frontend(),
			f.in("reject"), one(reset)),
		f.rule("meta l4proto udp "+at+" icmpx port-unreachable", l4proto(intent.UDP), f.frontend(), f.in("reject"),
			one(unreachable)),
		f.rule("meta l4proto sctp ct state new "+at+" icmpx port-unreachable",
			l4proto(intent.SCTP), isNew(), f.frontend(), f.in("reject"), one(unreachable)),
	}
}

// sourceRule drops what others than its source ranges send to a load balancer's address. What pods
// send, the bridge has let pass.
func (f serviceFamily) sourceRule(gateway string) rule {
	text, restricted := f.notOfRanges()
	return f.rule(fmt.Sprintf("iifname != %s %s", gateway, text),
		device(expr.MetaKeyIIFNAME, expr.CmpOpNeq, gateway), restricted)
}

// everySourceRule is sourceRule for pods, too.
func (f serviceFamily) everySourceRule() rule {
	text, restricted := f.notOfRanges()
	return f.rule(text, restricted)
}

// wireSourceRule is sourceRule for what the bridge takes from the wire of a physical network, which
// it has not judged.
func (f serviceFamily) wireSourceRule(gateway string) rule {
	text, restricted := f.notOfRanges()
	wired, of := f.fromWire(gateway)
	return f.rule(of+text, wired, restricted)
}

// notOfRanges ends a rule that drops what is not of the source ranges of an address.
func (f serviceFamily) notOfRanges() (text string, end []expr.Any) {
	at := fmt.Sprintf("%s daddr . meta l4proto . th dport", f.ip)
	return fmt.Sprintf("%s @restricted%s %s . %s saddr != @allowed%s drop", at, f.name, at, f.ip, f.name),
		slices.Concat(f.frontend(), f.in("restricted"), f.load(f.src, f.words()+2),
			lookup(expr.Lookup{SetName: "allowed" + f.name, Invert: true}), verdict(expr.VerdictDrop))
}

// forwardedRule marks what the host does not send itself to a ClusterIP: clients of an external
// address that leads there, as other tenants' pods and hosts outside are, and hosts that have a
// route. They get the gateway's address, as the host's own processes have it, and the bridge must
// not take them for these.
func (f serviceFamily) forwardedRule(gateway string, all bool) rule {
	text := fmt.Sprintf("oifname %s %s daddr @clusterips%s", gateway, f.ip, f.name)
	forwarded := slices.Concat(device(expr.MetaKeyOIFNAME, expr.CmpOpEq, gateway), f.load(f.dst, 0), f.in("clusterips"))
	if all {
		lowered, lower := f.lowerTTL()
		return f.rule(text+" "+lowered, forwarded, lower)
	}
	return f.rule(fmt.Sprintf("%s %s dscp set %d", text, f.ip, datapath.ForwardedDSCP),
		forwarded, f.setDSCP(datapath.ForwardedDSCP))
}

// lowerTTL takes what has a TTL, or hop limit, of more than reserved.ForwardedTTL, and lowers it
// to that. It is never raised, so that what goes in circles ends.
func (f serviceFamily) lowerTTL() (text string, exprs []expr.Any) {
	const ttl, hopLimit = 8, 7
	name, offset := "ttl", uint32(ttl)
	if f.ipv6 {
		name, offset = "hoplimit", hopLimit
	}
	text = fmt.Sprintf("%s %s > %d %s %s set %d", f.ip, name, reserved.ForwardedTTL, f.ip, name, reserved.ForwardedTTL)
	load := &expr.Payload{DestRegister: register(0), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 1}
	above := &expr.Cmp{Op: expr.CmpOpGt, Register: register(0), Data: []byte{reserved.ForwardedTTL}}
	if f.ipv6 {
		// The two bytes of next header and hop limit.
		return text, append([]expr.Any{load, above}, f.setBytes(hopLimit-1, 0xff00, reserved.ForwardedTTL)...)
	}
	return text, append([]expr.Any{load, above}, f.setBytes(ttl, 0x00ff, reserved.ForwardedTTL<<8)...)
}

// setDSCP writes six bits of the first two bytes of the header: behind version and header length in
// IPv4, behind the version in IPv6, which has no checksum.
func (f serviceFamily) setDSCP(v uint16) []expr.Any {
	if f.ipv6 {
		return f.setBytes(0, 0xf03f, v<<6)
	}
	return f.setBytes(0, 0xff03, v<<2)
}

// setBytes writes value to those bits of two bytes of the header that mask does not keep.
func (f serviceFamily) setBytes(offset uint32, mask, value uint16) []expr.Any {
	sum := expr.CsumTypeInet
	if f.ipv6 {
		sum = expr.CsumTypeNone
	}
	const checksum = 10
	return []expr.Any{
		&expr.Payload{DestRegister: register(0), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 2},
		&expr.Bitwise{
			SourceRegister: register(0), DestRegister: register(0), Len: 2,
			Mask: binary.BigEndian.AppendUint16(nil, mask), Xor: binary.BigEndian.AppendUint16(nil, value),
		},
		&expr.Payload{
			OperationType: expr.PayloadWrite, SourceRegister: register(0), Base: expr.PayloadBaseNetworkHeader,
			Offset: offset, Len: 2,
			CsumType: sum, CsumOffset: checksum,
		},
	}
}

// rule is one for packets of the family.
func (f header) rule(text string, parts ...[]expr.Any) rule {
	family := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{f.proto}},
	}
	return rule{text: "meta nfproto " + f.ip + " " + text, exprs: append(family, slices.Concat(parts...)...)}
}

// register is the number of a register of four bytes.
func register(word uint32) uint32 { return unix.NFT_REG32_00 + word }

// words is how many registers an address fills.
func (f header) words() uint32 { return f.sz / 4 }

// load puts an address of the header into the registers from word on.
func (f header) load(offset, word uint32) []expr.Any {
	return one(&expr.Payload{DestRegister: register(word), Base: expr.PayloadBaseNetworkHeader, Offset: offset,
		Len: f.sz})
}

// frontend loads destination address, protocol and destination port.
func (f header) frontend() []expr.Any {
	return append(f.load(f.dst, 0), protocolAndPort(f.words())...)
}

// protocolAndPort loads protocol and destination port.
func protocolAndPort(word uint32) []expr.Any {
	const dport = 2
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register(word)},
		&expr.Payload{DestRegister: register(word + 1), Base: expr.PayloadBaseTransportHeader, Offset: dport, Len: 2},
	}
}

// in says that what was loaded is in the family's set.
func (f header) in(name string) []expr.Any { return lookup(expr.Lookup{SetName: name + f.name}) }

func lookup(l expr.Lookup) []expr.Any {
	l.SourceRegister = register(0)
	return one(&l)
}

// nat translates to the address that was loaded.
func (f serviceFamily) nat(n expr.NAT) []expr.Any {
	n.Family, n.RegAddrMin = uint32(f.proto), register(0)
	return one(&n)
}

func immediate(a netip.Addr) []expr.Any {
	return one(&expr.Immediate{Register: register(0), Data: a.AsSlice()})
}

func is(a netip.Addr) []expr.Any {
	return one(&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: a.AsSlice()})
}

func device(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: op, Register: 1, Data: ifname(name)},
	}
}

// local says that the destination is the host.
func local() []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: register(0), FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
}

func l4proto(p intent.Protocol) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: []byte{byte(p)}},
	}
}

// isNew says that the packet is the first of its connection.
func isNew() []expr.Any { return inState(expr.CtStateBitNEW) }

// inState says that conntrack has the packet in the state of a bit.
func inState(bit uint32) []expr.Any {
	mask, zero := binaryutil.NativeEndian.PutUint32(bit), make([]byte, 4)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: register(0)},
		&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 4, Mask: mask, Xor: zero},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register(0), Data: zero},
	}
}

func verdict(k expr.VerdictKind) []expr.Any { return one(&expr.Verdict{Kind: k}) }

func one(e expr.Any) []expr.Any { return []expr.Any{e} }
