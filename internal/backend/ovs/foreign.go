// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/hostnet"
)

// ForeignDatapath is that of a bridge that an external controller owns, or the one that it would be
// made with.
func (b *Backend) ForeignDatapath(ctx context.Context, bridge string) (string, error) {
	return b.foreign.Datapath(ctx, bridge)
}

// PlugForeign makes the port of an attachment on such a bridge, and what is missing for it. On an
// error nothing is left of what was made.
func (b *Backend) PlugForeign(ctx context.Context, f attachment.ForeignBridge, at attachment.Attachment) error {
	return b.foreign.Plug(ctx, f, at)
}

// UnplugForeign removes the port of an attachment; that there is none is no error.
func (b *Backend) UnplugForeign(ctx context.Context, at attachment.Attachment) error {
	return b.foreign.Unplug(ctx, at)
}

// CloseForeign is UnplugForeign, and returns when the host interface is not used any more.
func (b *Backend) CloseForeign(ctx context.Context, at attachment.Attachment) error {
	return b.foreign.Close(ctx, at)
}

// CheckForeign says what of PlugForeign's is missing or differs.
func (b *Backend) CheckForeign(ctx context.Context, f attachment.ForeignBridge, at attachment.Attachment) error {
	return b.foreign.Check(ctx, f, at)
}

// ForeignUsable says why pods cannot be plugged into such a bridge.
func (b *Backend) ForeignUsable(ctx context.Context, f attachment.ForeignBridge) error {
	return b.foreign.Usable(ctx, f)
}

// ForeignAttached are the attachments on such bridges.
func (b *Backend) ForeignAttached(ctx context.Context) ([]attachment.Attachment, error) {
	return b.foreign.Attached(ctx)
}

// foreignLinks are the node's interfaces.
type foreignLinks struct {
	hostnet.KernelLinks
	sysctlDir string
}

// Card implements foreignbridge.Links.
func (l foreignLinks) Card(name string) (hostnet.Card, error) {
	return hostnet.FindCard(name, l.sysctlDir)
}
