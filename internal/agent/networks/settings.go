// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// Settings makes intent of what the configuration says. It comes before all else: which Networks a
// node can have follows from its uplinks.
func Settings(c config.Config, tx *intent.Tx) {
	var guarded []intent.GuardedPort
	guard := func(protocol intent.Protocol, port int) {
		if port != 0 {
			guarded = append(guarded, intent.GuardedPort{Protocol: protocol, Port: uint16(port)}) //nolint:gosec // validated
		}
	}
	// The metrics are not among them: their readers are pods.
	guard(intent.TCP, c.LoadBalancer.MemberlistPort)
	guard(intent.UDP, c.LoadBalancer.MemberlistPort)
	guard(intent.TCP, c.Policy.ControllerPort)
	tx.ReplaceGuardedPorts(guarded)
	var at []intent.NodePortAddress
	for _, p := range c.Services.NodePortAddresses {
		at = append(at, intent.NodePortAddress{Prefix: p})
	}
	tx.ReplaceNodePortAddresses(at)
	var uplinks []intent.Uplink
	for physical, bridge := range c.PhysicalNetworks() {
		u := c.Uplinks[physical]
		uplinks = append(uplinks,
			intent.Uplink{Physical: physical, Bridge: bridge, Card: u.Interface, Shared: u.Shared})
	}
	tx.ReplaceUplinks(uplinks)
}
