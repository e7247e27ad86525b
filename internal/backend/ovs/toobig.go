// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/backend/ovs/toobig"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/openflow"
)

// tooBigPackets answers packets that are too big for their way to another node.
type tooBigPackets struct {
	log     *slog.Logger
	intent  *intent.Store
	numbers *numbers
	count   *prometheus.CounterVec // by outcome
	// send has the switch send packets.
	send func(ctx context.Context, messages []openflow.Message) error
}

// lost counts a packet that found the queue full.
func (p *tooBigPackets) lost() { p.count.WithLabelValues(string(toobig.Dropped)).Inc() }

// answer does for a packet that is too big for its way what a router does.
func (p *tooBigPackets) answer(ctx context.Context, m *openflow.PacketIn2) {
	outcome := toobig.Dropped
	if o, ok := pipeline.TooBig(m); ok {
		var packets []*openflow.PacketOut
		packets, outcome = toobig.Handle(pipeline.Input{State: p.intent.State(), Numbers: p.numbers.get()}, o)
		if err := p.sendAll(ctx, packets); err != nil {
			p.log.Debug("cannot answer a packet that exceeds the path MTU; dropped it", "err", err)
			outcome = toobig.Dropped
		}
	}
	p.count.WithLabelValues(string(outcome)).Inc()
}

func (p *tooBigPackets) sendAll(ctx context.Context, packets []*openflow.PacketOut) error {
	if len(packets) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ovsTimeout)
	defer cancel()
	messages := make([]openflow.Message, len(packets))
	for i, packet := range packets {
		messages[i] = packet
	}
	return p.send(ctx, messages)
}
