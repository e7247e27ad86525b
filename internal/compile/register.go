// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// Registers hold what is known of a packet on its way.
//
//	reg0[0..3]  where it came from (a source)
//	reg1        id of its Network
//	reg2        id of its Router (VRF), which is also its conntrack zone
//	reg3        OpenFlow port to send it out of
//	xreg2       (reg4, reg5) MAC that answers a question
//	reg6        flags of a neighbour advertisement
//	reg7        scratch
var (
	regZone   = openflow.Reg(2).Bits(0, 15)
	regOutput = openflow.Reg(3).All()
	regMAC    = openflow.XReg(2).Bits(0, 47)
	regFlags  = openflow.Reg(6).All()
	regSpare  = openflow.Reg(7).All()
)

// source is the kind of port on which a packet came in.
type source uint8

const (
	fromPod     source = 1
	fromGateway source = 2
	fromTunnel  source = 3
)

// from matches or sets the source.
func from(s source) openflow.FieldValue { return openflow.Reg(0).Masked(uint64(s), 0xf) }

// inNetwork matches or sets the network.
func inNetwork(n intent.Network) openflow.FieldValue { return openflow.Reg(1).Value(uint64(n.ID)) }

// inRouter matches or sets the router.
func inRouter(r intent.Router) openflow.FieldValue { return openflow.Reg(2).Value(uint64(r.ID)) }

// toPort matches or sets the output port.
func toPort(port uint32) openflow.FieldValue { return openflow.Reg(3).Value(uint64(port)) }

// ctFromGateway is the bit of ct_mark that says that the connection's first
// packet came from the gateway port.
var ctFromGateway = openflow.CTMark(1, 1)

var (
	routerMAC  = openflow.MAC(intent.RouterMAC)
	gatewayMAC = openflow.MAC(intent.GatewayMAC)
)
