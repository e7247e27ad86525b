// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"testing"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/broadcast"
)

// unnamed has no names of ports, and says so again and again.
type unnamed struct {
	LogicalPorts
	changes broadcast.Broadcast
	asked   chan struct{}
}

func (u *unnamed) Port(attachment.Attachment) (string, int) {
	u.asked <- struct{}{}
	return "", 0
}

func (u *unnamed) Changed() <-chan struct{} { return u.changes.Changed() }

// unasked is a database that must not be asked.
type unasked struct {
	portDatabase
	t *testing.T
}

func (unasked) Watch() (<-chan struct{}, func()) { return nil, func() {} }

func (u unasked) Ports(context.Context) ([]ovsdb.PortState, error) {
	u.t.Error("Open vSwitch is asked for a port whose name is not known")
	return nil, nil
}

func (u unasked) Interfaces(ctx context.Context, _, _ string) ([]ovsdb.PortState, error) {
	return u.Ports(ctx)
}

// Attachments that wait for their names do not look at all ports whenever one gets its name: of
// many that come at once each would, for each of the others.
func TestWaitsForItsName(t *testing.T) {
	names := &unnamed{asked: make(chan struct{})}
	p := &ports{logical: names, db: unasked{t: t}, patience: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- p.awaitInstalled(ctx, attachment.Attachment{}, func(string, int) error { return nil })
	}()
	for range 10 {
		<-names.asked
		names.changes.Send()
	}
	cancel()
	for {
		select {
		case <-names.asked:
		case err := <-ended:
			if err == nil {
				t.Error("connected without a name")
			}
			return
		}
	}
}
