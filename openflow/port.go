// SPDX-License-Identifier: Apache-2.0

package openflow

// Port describes a port.
type Port struct {
	No     uint32
	MAC    MAC
	Name   string // at most 15 bytes
	Config PortConfig
	State  PortState
}

// PortConfig is what was asked of a port.
type PortConfig uint32

// Configurations.
const (
	PortDown       PortConfig = 1 << 0 // administratively down
	PortNoRecv     PortConfig = 1 << 2
	PortNoFwd      PortConfig = 1 << 5
	PortNoPacketIn PortConfig = 1 << 6
)

// PortState is the state of a port.
type PortState uint32

// States.
const (
	PortLinkDown PortState = 1 << 0
	PortBlocked  PortState = 1 << 1
	PortLive     PortState = 1 << 2
)

// Lengths of a port's name and description on the wire.
const (
	portNameLen = 16
	portLen     = 40
)

func (p *Port) appendTo(b []byte) []byte {
	b = be.AppendUint32(b, p.No)
	b = append(be.AppendUint16(b, portLen), 0, 0)
	b = append(append(b, p.MAC[:]...), 0, 0)
	b = appendText(b, p.Name, portNameLen)
	return be.AppendUint32(be.AppendUint32(b, uint32(p.Config)), uint32(p.State))
}

// appendText appends s cut or padded with zeros to n bytes, the last of which is zero.
func appendText(b []byte, s string, n int) []byte {
	s = s[:min(len(s), n-1)]
	b = append(b, s...)
	for range n - len(s) {
		b = append(b, 0)
	}
	return b
}

// port reads the description of a port. Its properties (speeds) are left out.
func (r *reader) port() (p Port) {
	p.No = r.uint32()
	n := int(r.uint16())
	if n < portLen && r.err == nil {
		r.fail("port of %d bytes", n)
	}
	r.skip(2)
	copy(p.MAC[:], r.next(6))
	r.skip(2)
	p.Name = r.text(portNameLen)
	p.Config, p.State = PortConfig(r.uint32()), PortState(r.uint32())
	r.skip(n - portLen)
	return p
}

// PortStatus says that a port came, went or changed.
type PortStatus struct {
	Reason PortReason
	Port   Port
}

// PortReason says what happened to a port.
type PortReason uint8

// Reasons.
const (
	PortAdded PortReason = iota
	PortDeleted
	PortModified
)

var portReasonNames = []string{"ADD", "DEL", "MOD"}

// String prints the reason as ovs-ofctl does.
func (r PortReason) String() string { return nameOf(portReasonNames, r) }

func (*PortStatus) msgType() uint8 { return typePortStatus }

func (m *PortStatus) appendBody(b []byte) []byte {
	return m.Port.appendTo(append(b, byte(m.Reason), 0, 0, 0, 0, 0, 0, 0))
}

func decodePortStatus(r *reader) Message {
	m := &PortStatus{Reason: PortReason(r.uint8())}
	r.skip(7)
	m.Port = r.port()
	return m
}
