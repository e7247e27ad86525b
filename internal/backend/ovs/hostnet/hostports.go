// SPDX-License-Identifier: Apache-2.0

package hostnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"coelan.io/coelan/internal/intent"
)

// hostPortsTable is the nftables table (family inet) of the ports that pods have at the node's
// addresses. It is there only while there are some.
const hostPortsTable = "coelan-hostports"

// HostPort is a port of the node's addresses of one family that leads to a pod.
type HostPort struct {
	Protocol intent.Protocol
	Port     uint16
	// Address is the one of the node's that has the port; not valid: all of To's family.
	Address netip.Addr
	To      netip.AddrPort
}

func (p HostPort) String() string {
	at := "*"
	if p.Address.IsValid() {
		at = p.Address.String()
	}
	return fmt.Sprintf("%s port %d of %s", p.Protocol, p.Port, at)
}

// A host port gives way to a node port where the bridge balances: that chain comes before. The
// chain of the CNI plugin portmap comes after: what it has left behind of a pod that is gone must
// not lead to whichever pod has the address now. Clients are hidden before another program could.
var (
	hostPortDNAT = *nftables.ChainPriorityNATDest - 5
	hostPortSNAT = *nftables.ChainPriorityNATSource - 5
)

// SetHostPorts replaces the host ports of pods. It returns when the kernel has them; before the
// first Set or Apply, these write them. Of two for the same port the later one counts.
func (h *Host) SetHostPorts(list []HostPort) error {
	h.applying.Lock()
	defer h.applying.Unlock()
	h.mu.Lock()
	d := h.desired
	h.mu.Unlock()
	before := h.hostPorts
	h.hostPorts = slices.Clone(list)
	if d == nil {
		return nil
	}
	_, err := h.applyHostPorts(*d)
	if e := forgetHostPorts(before, h.hostPorts); e != nil {
		h.log.Warn("cannot delete conntrack entries of changed host ports; clients may reach the previous pod",
			"err", e)
	}
	return err
}

// CheckHostPorts returns an error if the kernel lacks some.
func (h *Host) CheckHostPorts() error {
	h.applying.Lock()
	defer h.applying.Unlock()
	h.mu.Lock()
	d := h.desired
	h.mu.Unlock()
	if d == nil || len(h.hostPorts) == 0 {
		return nil
	}
	t := hostPortTable(*d, h.hostPorts)
	_, err := h.nft.with(t, func(conn *nftables.Conn) (int, error) {
		same, err := t.sameStructure(conn)
		if err != nil || !same {
			return 0, errors.Join(err, errors.New("the rules are not as they were written"))
		}
		have, err := t.read(conn)
		if err != nil {
			return 0, err
		}
		for i, s := range t.sets {
			if s.lacks(have[i]) {
				return 0, fmt.Errorf("set %s lacks an element", s.name)
			}
		}
		return 0, nil
	})
	return err
}

func (h *Host) applyHostPorts(d Desired) (int, error) {
	t := hostPortTable(d, h.hostPorts)
	n, err := h.nft.with(t, func(conn *nftables.Conn) (int, error) {
		if len(h.hostPorts) > 0 {
			_, n, err := t.apply(conn)
			return n, err
		}
		if there, err := exists(conn, t.kernel()); !there || err != nil {
			return 0, err
		}
		return 1, t.remove(conn)
	})
	if err != nil || !slices.ContainsFunc(h.hostPorts, func(p HostPort) bool { return p.To.Addr().Is4() }) {
		return n, err
	}
	// The node's own processes reach them by 127.0.0.1, too. What pods send there is dropped: see
	// the chain prerouting.
	m, err := h.sysctls.ensure("1", "net", "ipv4", "conf", d.Gateway.Name, "route_localnet")
	return n + m, err
}

// RemoveHostPorts deletes the table of host ports; one that is not there is fine.
func RemoveHostPorts() error { return removeTable(nftable{name: hostPortsTable}) }

func hostPortTable(d Desired, list []HostPort) nftable {
	t := nftable{name: hostPortsTable}
	var dnat, snat, marks []rule
	for _, f := range serviceFamilies(d.Gateway) {
		dnat, snat = append(dnat, f.hostPortRules()...), append(snat, f.hostPortSources(d.Gateway.Name)...)
		if d.HideClientsOfHostPorts {
			mark, hide := f.hiddenClients(d.Gateway.Name)
			marks, snat = append(marks, mark), append(snat, hide)
		}
		t.sets = append(t.sets, f.hostPortSets(list)...)
	}
	nat := nftables.ChainTypeNAT
	t.chains = []chain{
		baseChain("prerouting", nat, nftables.ChainHookPrerouting, hostPortDNAT, dnat),
		baseChain("output", nat, nftables.ChainHookOutput, hostPortDNAT, dnat),
		baseChain("postrouting", nat, nftables.ChainHookPostrouting, hostPortSNAT, snat),
	}
	if len(marks) > 0 {
		t.chains = append(t.chains, baseChain("hidden-postrouting", nftables.ChainTypeFilter,
			nftables.ChainHookPostrouting, *nftables.ChainPriorityMangle, marks))
	}
	return t
}

func (f serviceFamily) hostPortSets(list []HostPort) []set {
	at, anywhere := map[string]string{}, map[string]string{}
	targets, hairpins := map[string]string{}, map[string]string{}
	for _, p := range list {
		pod := p.To.Addr()
		if !f.is(pod) {
			continue
		}
		if p.Address.IsValid() {
			at[frontend(p.Address, p.Protocol, p.Port)] = endpoint(pod, p.To.Port())
		} else {
			anywhere[service(p.Protocol, p.Port)] = endpoint(pod, p.To.Port())
		}
		targets[frontend(pod, p.Protocol, p.To.Port())] = ""
		hairpins[string(pod.AsSlice())+string(pod.AsSlice())] = ""
	}
	front, back := concat(f.addr, nftables.TypeInetProto, nftables.TypeInetService),
		concat(f.addr, nftables.TypeInetService)
	protoPort := concat(nftables.TypeInetProto, nftables.TypeInetService)
	return []set{
		{name: "at" + f.name, key: front, value: back, kind: keys, elements: at},
		{name: "anywhere" + f.name, key: protoPort, value: back, kind: keys, elements: anywhere},
		{name: "targets" + f.name, key: front, kind: keys, elements: targets},
		{name: "hairpins" + f.name, key: concat(f.addr, f.addr), kind: keys, elements: hairpins},
	}
}

// hostPortRules lead to pods. IPv6 has no way from its loopback address to another interface.
func (f serviceFamily) hostPortRules() []rule {
	to := func(name string) []expr.Any {
		return lookup(expr.Lookup{SetName: name + f.name, DestRegister: register(0), IsDestRegSet: true})
	}
	dnat := f.nat(expr.NAT{Type: expr.NATTypeDestNAT, RegProtoMin: register(f.words())})
	var routable []expr.Any
	if f.ipv6 {
		routable = append(f.load(f.dst, 0), &expr.Cmp{
			Op: expr.CmpOpNeq, Register: register(0), Data: netip.IPv6Loopback().AsSlice(),
		})
	}
	return []rule{
		f.rule(fmt.Sprintf("fib daddr type local dnat to %s daddr . meta l4proto . th dport map @at%s", f.ip, f.name),
			local(), routable, f.frontend(), to("at"), dnat),
		f.rule(fmt.Sprintf("fib daddr type local dnat to meta l4proto . th dport map @anywhere%s", f.name),
			local(), routable, protocolAndPort(0), to("anywhere"), dnat),
	}
}

// hostPortSources hide no client but two: the node's own processes, which policies know by the
// gateway's address, and a pod from itself, which would not take its own address for another's.
func (f serviceFamily) hostPortSources(gateway string) []rule {
	towards := device(expr.MetaKeyOIFNAME, expr.CmpOpEq, gateway)
	own := []expr.Any{
		&expr.Fib{Register: register(0), FlagSADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}
	snat := f.snatToGateway()
	return []rule{
		f.rule(fmt.Sprintf("oifname %s ct status dnat %s daddr . meta l4proto . th dport @targets%s fib saddr type local snat to %s fully-random",
			gateway, f.ip, f.name, f.gateway), towards, translatedTo(), f.frontend(), f.in("targets"), own, snat),
		f.rule(fmt.Sprintf("oifname %s ct status dnat %s saddr . %s daddr @hairpins%s snat to %s fully-random",
			gateway, f.ip, f.ip, f.name, f.gateway),
			towards, translatedTo(), f.load(f.src, 0), f.load(f.dst, f.words()), f.in("hairpins"), snat),
	}
}

func (f serviceFamily) snatToGateway() []expr.Any {
	return append(immediate(f.gateway), f.nat(expr.NAT{Type: expr.NATTypeSourceNAT, FullyRandom: true})...)
}

// hiddenClients are the rules of Desired.HideClientsOfHostPorts.
func (f serviceFamily) hiddenClients(gateway string) (mark, hide rule) {
	text := fmt.Sprintf("oifname %s iifname %s ct status dnat %s daddr . meta l4proto . th dport @targets%s",
		gateway, gateway, f.ip, f.name)
	through := slices.Concat(device(expr.MetaKeyOIFNAME, expr.CmpOpEq, gateway),
		device(expr.MetaKeyIIFNAME, expr.CmpOpEq, gateway), translatedTo(), f.frontend(), f.in("targets"))
	lowered, lower := f.lowerTTL()
	return f.rule(text+" "+lowered, through, lower),
		f.rule(fmt.Sprintf("%s snat to %s fully-random", text, f.gateway), through, f.snatToGateway())
}

// forgetHostPorts makes the kernel's conntrack forget the connections of ports that are gone, and
// UDP to those that have come: a client that goes on sending would be led where it was before.
func forgetHostPorts(before, now []HostPort) error {
	changed := changedHostPorts(before, now)
	if len(changed.come)+len(changed.gone) == 0 {
		return nil
	}
	var errs []error
	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(f), &changed)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) && !errors.Is(err, unix.EAFNOSUPPORT) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

type staleHostPorts struct{ come, gone []HostPort }

func changedHostPorts(before, now []HostPort) staleHostPorts {
	var changed staleHostPorts
	for _, p := range now {
		if !slices.Contains(before, p) && p.Protocol == intent.UDP {
			changed.come = append(changed.come, p)
		}
	}
	for _, p := range before {
		if !slices.Contains(now, p) {
			changed.gone = append(changed.gone, p)
		}
	}
	return changed
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s *staleHostPorts) MatchConntrackFlow(c *netlink.ConntrackFlow) bool {
	asked := func(p HostPort) bool {
		return c.Forward.Protocol == uint8(p.Protocol) && c.Forward.DstPort == p.Port &&
			(!p.Address.IsValid() || addr(c.Forward.DstIP) == p.Address)
	}
	return slices.ContainsFunc(s.gone, func(p HostPort) bool {
		return asked(p) && addr(c.Reverse.SrcIP) == p.To.Addr() && c.Reverse.SrcPort == p.To.Port()
	}) || slices.ContainsFunc(s.come, func(p HostPort) bool {
		// What a pod serves by itself, or another host does, is not the node's.
		return asked(p) && addr(c.Forward.DstIP).Is4() == p.To.Addr().Is4() && addr(c.Reverse.SrcIP) != p.To.Addr()
	})
}

// toLoopback is what pods must never send to: the setting route_localnet would let it in.
func toLoopback(gateway string) rule {
	mask, loopback := []byte{0xff, 0, 0, 0}, []byte{127, 0, 0, 0}
	return header4.rule("iifname "+gateway+" ip daddr 127.0.0.0/8 drop",
		device(expr.MetaKeyIIFNAME, expr.CmpOpEq, gateway), header4.load(header4.dst, 0),
		[]expr.Any{
			&expr.Bitwise{SourceRegister: register(0), DestRegister: register(0), Len: 4, Mask: mask,
				Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register(0), Data: loopback},
		}, drop())
}

// guardsPort says whether the guard needs a port of the nodes for itself.
func (g Guard) guardsPort(p intent.Protocol, port uint16) bool {
	return slices.Contains(g.Ports, NodePort{p, port}) || p == intent.UDP && port == g.Tunnel && port != 0
}

// Reserves says whether a port of the node's is Coelan's own, which no pod can have.
func (h *Host) Reserves(p intent.Protocol, port uint16) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.desired != nil && h.desired.Guard.guardsPort(p, port)
}
