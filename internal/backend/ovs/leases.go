// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"fmt"

	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/openflow"
)

// ToWire sends a frame without a VLAN tag to the physical network of a Network.
func (b *Backend) ToWire(ctx context.Context, network string, frame []byte) error {
	return b.external.toWire(ctx, network, frame)
}

// ToMachine sends a frame out of a Port of this node.
func (b *Backend) ToMachine(ctx context.Context, port string, frame []byte) error {
	number := b.numbers.get().Port(port)
	if number == 0 {
		return fmt.Errorf("%s has no port on bridge %s", port, b.Config.Bridge)
	}
	return bounded(ctx, []openflow.Message{toMachine(number, frame)}, b.clients.post)
}

// replied passes on what a DHCP server of a physical network answers.
func (b *Backend) replied(_ context.Context, m *openflow.PacketIn2) {
	if network, ok := pipeline.NetworkOf(b.Intent.State(), m); ok {
		b.Hooks.Replied(network, m.Packet)
	}
}
