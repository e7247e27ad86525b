// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"fmt"
	"sync/atomic"

	"coelan.io/coelan/internal/backend/ovs/ctlimit"
	"coelan.io/coelan/internal/conditions"
	"coelan.io/coelan/internal/trigger"
	"coelan.io/coelan/openflow"
)

// connections follows those to the database and to the switch.
type connections struct {
	bridge     string
	conditions *conditions.Set
	metrics    *metrics
	asked      *asked
	flows      *flows
	packets    *packets
	limiter    *ctlimit.Limiter
	doubt      func() // see egress
	reconcile  trigger.Trigger
	// portAdded takes the OpenFlow number of a port as soon as the switch has it.
	portAdded func(name string, number int)
	// ending says that the agent itself closes its connections.
	ending atomic.Bool
}

// dbConnected and dbLost follow the connection to the database.
func (c *connections) dbConnected() {
	c.metrics.connected("database")
	c.asked.bridge.Store(false)
	c.asked.version.Store(false)
	c.reconcile.Fire()
}

func (c *connections) dbLost(err error) {
	if c.ending.Load() {
		return
	}
	c.asked.version.Store(false)
	c.conditions.Set(condOVS, err)
	c.reconcile.Fire()
}

// switchReports takes messages of the switch that answer no request: a port is open some time
// before the database says so, or a packet that flows send to the agent.
func (c *connections) switchReports(m openflow.Message) {
	switch m := m.(type) {
	case *openflow.PortStatus:
		if m.Reason == openflow.PortAdded {
			c.portAdded(m.Port.Name, int(m.Port.No))
		}
	case *openflow.PacketIn2:
		c.packets.dispatch(m)
	}
}

// switchConnected and switchLost follow the connection to the bridge. A new one means that
// ovs-vswitchd has restarted: its flows are gone, and so may be interfaces that it made.
func (c *connections) switchConnected() {
	c.metrics.connected("switch")
	c.asked.version.Store(false)
	c.limiter.Renew()
	c.doubt()
	c.flows.wake.Fire()
	c.reconcile.Fire()
}

func (c *connections) switchLost(err error) {
	if c.ending.Load() {
		return
	}
	c.asked.version.Store(false)
	c.flows.lost(fmt.Errorf("bridge %s does not answer: %w", c.bridge, err))
	c.reconcile.Fire()
}
