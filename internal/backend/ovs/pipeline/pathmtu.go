// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"encoding/binary"
	"net/netip"

	"coelan.io/coelan/internal/backend/ovs/datapath"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// pathMTUFeature finds packets that are too big for a node with a smaller MTU, or for a Port with
// one, and gives them to the agent, which answers with ICMP or, where the sender allows it, sends
// fragments. Otherwise they would be lost without a sign: neither a tunnel nor an interface of Open
// vSwitch answers.
//
// The length is compared last, where the way ends in the tunnel or at the Port: all ways do, routed
// or not, policies have let the packet pass, and the tunnel's destination alone says which node it
// is for. Where all MTUs are the same there is no such flow.
var pathMTUFeature = &feature{
	number: 25,
	name:   "path-mtu",
	tables: []Table{pathMTU},
	local: func(r *rules) {
		if !r.anyNarrow() {
			return
		}
		r.tooBig(datapath.GatewayPort)
		r.on(pathMTU, 50, tooBig).drop("the packet is too big for its way to the other node")
		r.on(pathMTU, 0).do(openflow.OutputField(regOutput)).end()
	},
	node: func(r *rules, n intent.Node) {
		remote := n.AddressIn(r.local.TunnelIP)
		if !remote.IsValid() || !narrow(r.local, n) {
			return
		}
		r.compareLength(PathMTU(r.local, n), toPort(datapath.TunnelPort), openflow.TunDst(remote))
	},
	port: func(r *rules, p intent.Port) {
		if !r.anyNarrow() {
			return
		}
		r.tooBig(r.number(p))
		if n, _, ok := r.lookup(p.Network); !ok || n.Physical != "" || !narrowPort(r.local, p) {
			return // a physical network is one segment without a router of Coelan's
		}
		r.compareLength(p.MTU, toPort(r.number(p)))
		if r.tunneled() {
			r.on(pathMTU, 100, openflow.InPort(datapath.TunnelPort), toPort(r.number(p)),
				tooBig).do(r.toAgent(r.number(p))).end()
		}
		r.on(pathMTU, 60, toPort(r.number(p)), tooBig).drop("the packet is too big for the port")
	},
}

// compareLength has packets that leave so come to pathMTU, which knows whether they are too big.
func (r *rules) compareLength(mtu int, when ...openflow.FieldValue) {
	r.on(output, 90, when...).
		set(regPathMTU.Value(uint64(mtu))).
		do(openflow.CheckPktLarger(uint16(mtu+ethernetHeader), regTooBig)). //nolint:gosec // MTUs have 16 bits
		goTo(pathMTU)
}

const (
	ethernetHeader = 14
	// minPathMTU bounds what a node can make others send to it: every link carries as much (RFC
	// 8200, section 5).
	minPathMTU = 1280
)

// What the agent is told of a packet that is too big.
var (
	regPathMTU = regBits(openflow.Reg(7), 0, 15, ofPathMTU, "size of the largest packet that fits the path")
	regTooBig  = regBits(openflow.Reg(0), 22, 22, ofPathMTU, "too big for the path")
	tooBig     = regTooBig.Value(1)
)

// PathMTU is the size of the largest packet that fits the way from this node to the pods of n. What
// n says of itself cannot make it smaller than every link's, nor larger than what this node's own
// uplink carries.
func PathMTU(local intent.Local, n intent.Node) int {
	if n.MTU == 0 || n.Name == local.Node {
		return local.MTU
	}
	return min(local.MTU, max(n.MTU, minPathMTU))
}

// narrow says whether a Port of this node may send what does not fit the way to n.
func narrow(local intent.Local, n intent.Node) bool {
	return local.Encapsulation.Tunneled() && n.Name != local.Node && PathMTU(local, n) < max(local.MTU, local.PortMTU)
}

// narrowPort says whether a Port of this node may be sent what does not fit it: its Network has a
// smaller MTU than others, or it is older than a change of its node's.
func narrowPort(local intent.Local, p intent.Port) bool {
	return p.Node == local.Node && p.MTU > 0 && p.MTU < max(local.MTU, local.PortMTU)
}

// anyNarrow says whether there is any such node or Port.
func (r *rules) anyNarrow() bool {
	r.dependOn(unitKey{kind: kindNarrow})
	return r.narrow
}

func anyNarrow(s *snapshot) bool {
	for n := range s.Nodes().All() {
		if narrow(s.Local(), n) {
			return true
		}
	}
	for p := range s.Ports().All() {
		if narrowPort(s.Local(), p) {
			return true
		}
	}
	return false
}

// narrowMay says whether anyNarrow may differ between two States.
func narrowMay(from, to *snapshot, delta intent.Delta) bool {
	if len(delta.Nodes) > 0 {
		return true
	}
	for _, id := range delta.Ports {
		for _, s := range []*snapshot{from, to} {
			if p, ok := s.Ports().Get(id); ok && narrowPort(s.Local(), p) {
				return true
			}
		}
	}
	return false
}

// tooBig gives the agent what comes in by a port and is too big.
func (r *rules) tooBig(port uint32) {
	r.on(pathMTU, 100, openflow.InPort(port), tooBig).do(r.toAgent(port)).end()
}

// toAgent gives the agent a packet that is too big, as many in a second as the meter of
// a port lets pass.
func (r *rules) toAgent(port uint32) openflow.Action {
	return openflow.Controller{Userdata: TooBigUserdata, Meter: r.agentMeter(port)}
}

// TooBigUserdata is what packets bring along that are too big for their way.
const TooBigUserdata = "coelan/too-big"

// Oversize is a packet that is too big for its way to another node, or for a Port.
type Oversize struct {
	Frame  []byte
	InPort uint32
	// OutPort is the port that it would leave by.
	OutPort uint32
	// MTU is the size of the largest packet that fits.
	MTU int
	// TunnelSrc is the node that the packet comes from, if it came in by the tunnel.
	TunnelSrc netip.Addr
	// TunnelDst is the node that it goes to, if it leaves by the tunnel, and TunnelID the key of
	// the one or the other.
	TunnelDst netip.Addr
	TunnelID  uint64
	// Reply says that a Service's address is its source by now, in place of the sender's.
	Reply bool
	// Destination is the Service's address that the sender asked, if the packet has its endpoint's
	// by now. SourcePort is the sender's own then, if the packet may have another; 0: it is not
	// known.
	Destination netip.AddrPort
	SourcePort  uint16
}

// TooBig reads what the switch says of a packet; false if that is not of one that is too big.
func TooBig(p *openflow.PacketIn2) (Oversize, bool) {
	if string(p.Userdata) != TooBigUserdata || len(p.Packet) < int(p.FullLen) {
		return Oversize{}, false
	}
	o := Oversize{
		Frame: p.Packet, InPort: p.InPort(), MTU: int(number(p.Metadata, regPathMTU)), //nolint:gosec // of 16 bits
		OutPort:  uint32(number(p.Metadata, regOutput)), //nolint:gosec // of 32 bits
		TunnelID: number(p.Metadata, openflow.FieldTunnelID.All()),
	}
	var asked netip.Addr
	var port uint16
	for _, v := range p.Metadata.Fields() {
		a, ok := v.Addr()
		switch f := v.Field(); {
		case !ok:
		case f == openflow.FieldTunDst || f == openflow.FieldTunIPv6Dst:
			o.TunnelDst = a
		case f == openflow.FieldTunSrc || f == openflow.FieldTunIPv6Src:
			o.TunnelSrc = a
		case f == openflow.FieldCTNWDst || f == openflow.FieldCTIPv6Dst:
			asked, port = a, uint16(number(p.Metadata, openflow.FieldCTTPDst.All())) //nolint:gosec // of 16 bits
		}
	}
	switch {
	case holds(p.Metadata, chosen):
		// Conntrack has been told of the connection and not yet been asked.
		o.Destination = savedAddress(p.Metadata, isIPv6(p.Packet))
	case holds(p.Metadata, ofService) && !holds(p.Metadata, openflow.CTState(openflow.CTRpl, 0)) && asked.IsValid():
		o.Destination = netip.AddrPortFrom(asked, port)
		o.SourcePort = uint16(number(p.Metadata, openflow.FieldCTTPSrc.All())) //nolint:gosec // of 16 bits
	}
	o.Reply = holds(p.Metadata, ofService) && holds(p.Metadata, openflow.CTState(openflow.CTRpl, 0))
	return o, o.MTU > 0 && o.OutPort != 0 && (o.OutPort != datapath.TunnelPort || o.TunnelDst.IsValid())
}

// Deliver sends a packet to a Port of this node as the end of its way does.
func Deliver(port uint32) []openflow.Action {
	return []openflow.Action{openflow.SetField(toPort(port)), openflow.Resubmit(output.ID)}
}

// number is a field of what is known of a packet; 0 if nothing is.
func number(m openflow.Match, s openflow.Subfield) uint64 {
	value, _ := m.Get(s)
	return value
}

// holds says whether what is known of a packet has all bits of v.
func holds(m openflow.Match, v openflow.FieldValue) bool {
	want, mask := v.Num()
	return number(m, v.Field().All())&mask == want
}

func isIPv6(frame []byte) bool {
	return len(frame) >= ethernetHeader && binary.BigEndian.Uint16(frame[ethernetHeader-2:]) == openflow.EthTypeIPv6
}

// savedAddress is what the registers hold of the Service that the packet was sent to.
func savedAddress(m openflow.Match, v6 bool) netip.AddrPort {
	var b [16]byte
	for i := range 4 {
		binary.BigEndian.PutUint32(b[4*i:], uint32(number(m, openflow.Reg(12+i).All()))) //nolint:gosec // of 32 bits
	}
	a := netip.AddrFrom4([4]byte(b[:4]))
	if v6 {
		a = netip.AddrFrom16(b)
	}
	return netip.AddrPortFrom(a, uint16(number(m, regPort))) //nolint:gosec // of 16 bits
}
