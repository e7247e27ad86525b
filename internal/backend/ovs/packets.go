// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"context"
	"log/slog"
	"sync"

	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/openflow"
)

// maxWaiting is how many packets of one kind may wait to be handled.
const maxWaiting = 256

// packets hands what flows send to the agent to the handler that the flow's userdata names.
// Each kind has a queue and a goroutine of its own, so that one that comes in masses does
// not hold up another.
type packets struct {
	log   *slog.Logger
	kinds map[string]packetKind
}

type packetKind struct {
	waiting chan *openflow.PacketIn2
	handle  func(context.Context, *openflow.PacketIn2)
	lost    func() // called for each packet that finds the queue full; may be nil
}

// on sets the handler of a kind; call it before dispatch and run.
func (p *packets) on(userdata string, handle func(context.Context, *openflow.PacketIn2), lost func()) {
	if p.kinds == nil {
		p.kinds = map[string]packetKind{}
	}
	p.kinds[userdata] = packetKind{make(chan *openflow.PacketIn2, maxWaiting), handle, lost}
}

// dispatch does not block. The switch sends no more of a kind than its meter lets pass; what is too
// much even so is left out.
func (p *packets) dispatch(m *openflow.PacketIn2) {
	name, _ := pipeline.Kind(m.Userdata)
	kind, ok := p.kinds[name]
	if !ok {
		p.log.Debug("ignored a packet-in with unknown userdata", "userdata", string(m.Userdata))
		return
	}
	select {
	case kind.waiting <- m:
	default:
		if kind.lost != nil {
			kind.lost()
		}
	}
}

// run handles packets until ctx ends.
func (p *packets) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, kind := range p.kinds {
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case m := <-kind.waiting:
					kind.handle(ctx, m)
				}
			}
		})
	}
	return nil
}
