// SPDX-License-Identifier: Apache-2.0

// Package bfd is Bidirectional Forwarding Detection (RFC 5880) in asynchronous mode: control
// packets and the state machine of a session. It does no I/O and has no clock: the time is an
// argument. Neither authentication nor the echo function are in use.
package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Port is the UDP port that control packets of single-hop sessions go to (RFC 5881, section 4).
const Port = 3784

// State is that of a session, as one system sees it (RFC 5880, section 4.1).
type State uint8

// States, with the numbers that packets have.
const (
	AdminDown State = iota
	Down
	Init
	Up
)

func (s State) String() string { return [...]string{"AdminDown", "Down", "Init", "Up"}[s&3] }

// Diagnostic is why a system has changed its state last (RFC 5880, section 4.1).
type Diagnostic uint8

// Diagnostics that a Session gives.
const (
	NoDiagnostic     Diagnostic = 0
	DetectionExpired Diagnostic = 1
	NeighbourDown    Diagnostic = 3
)

var diagnostics = [...]string{
	"none", "control detection time expired", "echo function failed", "neighbor signaled session down",
	"forwarding plane reset", "path down", "concatenated path down", "administratively down",
	"reverse concatenated path down",
}

func (d Diagnostic) String() string {
	if int(d) < len(diagnostics) {
		return diagnostics[d]
	}
	return fmt.Sprintf("diagnostic %d", uint8(d))
}

// Packet is a control packet (RFC 5880, section 4.1). Intervals are in microseconds.
type Packet struct {
	Diagnostic                Diagnostic
	State                     State
	Poll, Final               bool
	ControlPlaneIndependent   bool
	Demand                    bool
	DetectMult                uint8
	MyDiscriminator           uint32
	YourDiscriminator         uint32 // 0: not known
	DesiredMinTxInterval      uint32
	RequiredMinRxInterval     uint32 // 0: it wants no periodic packets
	RequiredMinEchoRxInterval uint32 // 0: it wants no echo packets
}

const (
	version   = 1
	packetLen = 24 // without authentication
)

// Bits of the second byte, below the state.
const (
	pollBit = 1 << (5 - iota)
	finalBit
	independentBit
	authenticationBit
	demandBit
	multipointBit
)

var be = binary.BigEndian

// Encode returns the packet's bytes.
func (p Packet) Encode() []byte {
	b := make([]byte, packetLen)
	b[0] = version<<5 | byte(p.Diagnostic)&0x1f
	b[1] = byte(p.State) << 6
	set := func(bit byte, on bool) {
		if on {
			b[1] |= bit
		}
	}
	set(pollBit, p.Poll)
	set(finalBit, p.Final)
	set(independentBit, p.ControlPlaneIndependent)
	set(demandBit, p.Demand)
	b[2], b[3] = p.DetectMult, packetLen
	for i, v := range [...]uint32{
		p.MyDiscriminator, p.YourDiscriminator,
		p.DesiredMinTxInterval, p.RequiredMinRxInterval, p.RequiredMinEchoRxInterval,
	} {
		be.PutUint32(b[4+4*i:], v)
	}
	return b
}

// Decode reads a packet, which may be followed by other bytes. It is an error if RFC 5880, section
// 6.8.6, has the packet discarded whatever the state of the session.
func Decode(b []byte) (Packet, error) {
	if len(b) < packetLen {
		return Packet{}, fmt.Errorf("BFD packet of %d bytes: at least %d are needed", len(b), packetLen)
	}
	if v := b[0] >> 5; v != version {
		return Packet{}, fmt.Errorf("BFD packet of version %d: only version %d is known", v, version)
	}
	if length := int(b[3]); length < packetLen || length > len(b) {
		return Packet{}, fmt.Errorf("BFD packet of %d bytes says that its length is %d", len(b), length)
	}
	flag := func(bit byte) bool { return b[1]&bit != 0 }
	p := Packet{
		Diagnostic: Diagnostic(b[0] & 0x1f), State: State(b[1] >> 6),
		Poll: flag(pollBit), Final: flag(finalBit), ControlPlaneIndependent: flag(independentBit),
		Demand: flag(demandBit), DetectMult: b[2],
		MyDiscriminator: be.Uint32(b[4:]), YourDiscriminator: be.Uint32(b[8:]),
		DesiredMinTxInterval: be.Uint32(b[12:]), RequiredMinRxInterval: be.Uint32(b[16:]),
		RequiredMinEchoRxInterval: be.Uint32(b[20:]),
	}
	switch {
	case flag(authenticationBit):
		return Packet{}, errors.New("BFD packet with authentication: none is in use, turn it off on the other system")
	case flag(multipointBit):
		return Packet{}, errors.New("BFD packet of a multipoint session: only those between two systems are known")
	case p.DetectMult == 0:
		return Packet{}, errors.New("BFD packet with a Detect Mult of 0")
	case p.MyDiscriminator == 0:
		return Packet{}, errors.New("BFD packet with a My Discriminator of 0")
	case p.YourDiscriminator == 0 && p.State > Down:
		return Packet{}, fmt.Errorf("BFD packet with a Your Discriminator of 0 in state %s", p.State)
	}
	return p, nil
}
