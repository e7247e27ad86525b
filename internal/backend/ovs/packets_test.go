// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"log/slog"
	"testing"

	"coelan.io/coelan/openflow"
)

// A packet goes to the handler of its userdata alone, and a kind that waits for its handler holds
// up no other.
func TestPacketsByUserdata(t *testing.T) {
	p := packets{log: slog.New(slog.DiscardHandler)}
	handled, lost, hold := make(chan string), 0, make(chan struct{})
	p.on("slow", func(context.Context, *openflow.PacketIn2) { <-hold }, func() { lost++ })
	p.on("fast", func(_ context.Context, m *openflow.PacketIn2) { handled <- string(m.Packet) }, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.run(ctx) }()
	const more = 3
	for range maxWaiting + 1 + more {
		p.dispatch(&openflow.PacketIn2{Userdata: []byte("slow")})
	}
	if lost != more && lost != more+1 { // the handler may have taken one, or not yet
		t.Errorf("%d packets were left out, want %d or one more", lost, more)
	}
	p.dispatch(&openflow.PacketIn2{Userdata: []byte("another"), Packet: []byte("of no kind")})
	p.dispatch(&openflow.PacketIn2{Userdata: []byte("fast"), Packet: []byte("one")})
	if got := <-handled; got != "one" {
		t.Errorf("handled %q", got)
	}
	close(hold)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
