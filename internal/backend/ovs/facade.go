// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"

	"coelan.io/coelan/internal/agentapi"
	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/config"
	"coelan.io/coelan/internal/intent"
)

// Expect prepares for an attachment before its Port becomes intent.
func (b *Backend) Expect(at attachment.Attachment) { b.attacher.expect(at) }

// Attach makes the port of an attachment, and returns when it forwards by the
// intent of that revision.
func (b *Backend) Attach(ctx context.Context, at attachment.Attachment, revision uint64) error {
	return b.attacher.attach(ctx, at, revision)
}

// Detach returns when the port of an attachment is gone, and the flows that it had before that
// revision of the intent.
func (b *Backend) Detach(ctx context.Context, at attachment.Attachment, revision uint64) error {
	return b.attacher.detach(ctx, at, revision)
}

// Check says what an attachment lacks.
func (b *Backend) Check(ctx context.Context, at attachment.Attachment) error {
	return b.attacher.check(ctx, at)
}

// Applied returns when the flows of that revision of the intent, or of a newer one,
// are on the switch.
func (b *Backend) Applied(ctx context.Context, revision uint64) error {
	return b.flows.wait(ctx, revision)
}

// Forwards is Applied, and returns a *backend.RefusedError if the switch does not have an
// attachment's flows although it has all others.
func (b *Backend) Forwards(ctx context.Context, at attachment.Attachment, revision uint64) error {
	return b.attacher.forwards(ctx, at, revision)
}

// Withdrawn returns when the flows of an attachment that is not in the intent of that revision are
// gone, or cannot be removed now: a later sync does it.
func (b *Backend) Withdrawn(ctx context.Context, at attachment.Attachment, revision uint64) {
	b.attacher.withdrawn(ctx, at, revision)
}

// Connected says why this node is not connected to a physical network.
func (b *Backend) Connected(physical string) error { return b.uplinks.connected(physical) }

// PhysicalNetworks are those of which it is known whether this node is connected to them, by name;
// nil before they have been looked at.
func (b *Backend) PhysicalNetworks() map[string]bool { return b.uplinks.known() }

// Reserves says whether the node itself needs one of its ports.
func (b *Backend) Reserves(p intent.Protocol, port uint16) bool {
	return b.host.kernel.Reserves(p, port)
}

// ForgetBalanced deletes connections of clients to endpoints that are gone.
func (b *Backend) ForgetBalanced(ctx context.Context, which []backend.Balanced) error {
	return b.tracking.forgetBalanced(ctx, which)
}

// Guests lists the interfaces of the bridge that are not Coelan's and say what
// they are plugged for.
func (b *Backend) Guests(ctx context.Context) ([]backend.Guest, error) {
	return b.attacher.ports.guests(ctx)
}

// RequestNumber gives an interface an OpenFlow port number, and waits until it has it.
func (b *Backend) RequestNumber(ctx context.Context, name string, number int) error {
	return b.clients.db.RequestNumber(ctx, name, number)
}

// Ports are all attachments, with what Open vSwitch has of each.
func (b *Backend) Ports(ctx context.Context) ([]agentapi.PortInfo, error) {
	return b.attacher.ports.list(ctx)
}

// PolicyStats reads the counters of the flows that decide.
func (b *Backend) PolicyStats(ctx context.Context) ([]agentapi.PolicyStat, error) {
	if !b.policed() {
		return []agentapi.PolicyStat{}, nil
	}
	return (&policyCounters{flows: b.flows, dump: b.clients.dump}).read(ctx)
}

// Findings compares attachments with ports, and flows with intent, and says what is not as it
// should be, and how many ports the bridge has.
func (b *Backend) Findings(ctx context.Context, result *agentapi.Check) (err error) {
	c := &checker{
		config: b.Config, ports: b.attacher.ports, uplinks: b.uplinks, flows: b.flows, tracking: b.tracking,
		refusals: b.refusals,
	}
	result.Findings, result.Ports, err = c.findings(ctx)
	return err
}

// Trace asks ovs-vswitchd for the packet's way, and names what it finds.
func (b *Backend) Trace(ctx context.Context, r agentapi.TraceRequest) (agentapi.Trace, error) {
	t := &tracer{
		node: b.Node, bridge: b.Config.Bridge, native: b.Config.Services.Mode == config.NativeServices,
		intent:      b.Intent,
		attachments: b.Attachments, vswitchd: b.clients.vswitchd, flows: b.flows, numbers: b.numbers,
		uplinks: b.uplinks.numbers, refusals: b.refusals,
	}
	return t.trace(ctx, r)
}
