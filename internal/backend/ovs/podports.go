// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
)

// A pod's interface is a port of the agent's bridge, or of another one that the pod's network
// configuration names. From there a wire of its own leads to the agent's, where everything is
// decided: the other bridge has nothing to decide, since each pod's port and its end of the wire
// are alone in a VLAN.
//
//	 pod a   pod b
//	   │       │
//	┌──┴──┐ ┌──┴──┐
//	│VLAN1│ │VLAN2│  the configuration's bridge
//	└──┬──┘ └──┬──┘
//	┌──┴───────┴──┐
//	│   br-int    │
//	└─────────────┘

// idPods marks a bridge that the agent has made for interfaces of pods.
const idPods = "coelan-pods"

// noFrames is the VLAN of such a bridge's LOCAL port, which is to get no frames: no frame has it.
const noFrames = 4095

// podPort is an attachment's port on the agent's bridge: its interface, or the end of its wire.
func podPort(at attachment.Attachment) ovsdb.Port {
	port := ovsdb.Port{Name: at.HostInterface, OFPort: int(at.OFPort)}
	if at.Bridge != "" {
		inner, outer := wireEnds(at)
		port = ovsdb.Patch(inner, outer, int(at.OFPort))
	}
	port.ExternalIDs = map[string]string{
		idInterface: at.PodRef(),
		idMAC:       at.MAC.String(),
		idContainer: at.ContainerID,
		idIfName:    at.IfName,
		idPodUID:    at.PodUID,
	}
	return port
}

// wireEnds are the names of the ends on the agent's bridge and on the attachment's. The host
// interface's name begins with co, and is as unique.
func wireEnds(at attachment.Attachment) (inner, outer string) {
	id := strings.TrimPrefix(at.HostInterface, "co")
	return "ci" + id, "cw" + id
}

// podPorts are all ports of an attachment. The first one is podPort.
func podPorts(agent string, at attachment.Attachment) []ovsdb.PlacedPort {
	port := podPort(at)
	list := []ovsdb.PlacedPort{{Bridge: agent, Port: port}}
	if at.Bridge == "" {
		return list
	}
	inner, outer := wireEnds(at)
	device, end := ovsdb.Port{Name: at.HostInterface, AnyNumber: true}, ovsdb.Patch(outer, inner, 0)
	for _, p := range []ovsdb.Port{device, end} {
		p.VLAN, p.ExternalIDs = int(at.VLAN), map[string]string{idContainer: at.ContainerID, idIfName: at.IfName}
		list = append(list, ovsdb.PlacedPort{Bridge: at.Bridge, Port: p})
	}
	return list
}

// make makes the ports of an attachment, and its bridge if there is none.
func (p *ports) make(ctx context.Context, at attachment.Attachment) error {
	if at.Bridge != "" {
		if err := p.ensureBridge(ctx, at.Bridge); err != nil {
			return fmt.Errorf("bridge %s of the network configuration: %w", at.Bridge, err)
		}
	}
	return p.db.EnsurePlaced(ctx, podPorts(p.bridge, at)...)
}

func isPodBridge(b ovsdb.BridgeState) bool { return b.Own && b.ExternalIDs[idPods] == "true" }

// ensureBridge makes a bridge for interfaces of pods. One that is not the agent's is taken if it is
// empty: a port of another program would be in the VLANs of all pods.
func (p *ports) ensureBridge(ctx context.Context, name string) error {
	bridges, err := p.db.Bridges(ctx)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(bridges, func(b ovsdb.BridgeState) bool { return b.Name == name }); i >= 0 {
		switch b := bridges[i]; {
		case isPodBridge(b):
			return nil
		case b.Own:
			return errors.New("it is one of the agent's own for something else: name another one")
		case b.Controlled:
			return errors.New("it has an OpenFlow controller: name another bridge, or this controller as well")
		}
	}
	return p.db.EnsureBridge(ctx, ovsdb.Bridge{
		Name: name, Datapath: string(p.intent.State().Local().Datapath), Switch: true, LocalVLAN: noFrames,
		ExternalIDs: map[string]string{idPods: "true"},
	})
}

// delete removes the ports of an attachment. It does not wait for ovs-vswitchd.
func (p *ports) delete(ctx context.Context, at attachment.Attachment) error {
	list := podPorts(p.bridge, at)
	for len(list) > 0 {
		bridge := list[0].Bridge
		var names []string
		for len(list) > 0 && list[0].Bridge == bridge {
			names, list = append(names, list[0].Name), list[1:]
		}
		if err := p.db.DelPorts(ctx, bridge, names...); err != nil {
			return err
		}
	}
	return nil
}
