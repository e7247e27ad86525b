// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"bytes"
	"context"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/internal/timers"
)

// Bounds of packets: how many wait for one next hop, and how many bytes wait for any, and to be
// sent.
const (
	maxWaiting      = 3
	maxWaitingBytes = 4 << 20
	maxQueuedBytes  = 4 << 20
)

// outgoing is a frame to be sent.
type outgoing struct {
	network string
	frame   []byte
	request *entry // what it asks for; nil if it does not ask
}

// outbox holds frames until Run sends them.
type outbox struct {
	frames []outgoing
	size   int
}

func (o *outbox) take() []outgoing {
	frames := o.frames
	*o = outbox{}
	return frames
}

// push has Run send a frame; false if too much waits for that.
func (r *Resolver) push(o outgoing) bool {
	if r.out.size+len(o.frame) > maxQueuedBytes {
		unsent(o)
		return false
	}
	r.out.frames = append(r.out.frames, o)
	r.out.size += len(o.frame)
	return true
}

// unsent has a request not count as unanswered.
func unsent(o outgoing) {
	if o.request != nil && o.request.unanswered > 0 {
		o.request.unanswered--
	}
}

func (r *Resolver) send(ctx context.Context, frames []outgoing) {
	for _, o := range frames {
		err := r.Send(ctx, o.network, o.frame)
		if err == nil {
			continue
		}
		r.Log.Debug("cannot send to an external Network", "network", o.network, "err", err)
		r.mu.Lock()
		unsent(o)
		r.mu.Unlock()
		if o.request == nil {
			r.metrics.lost(lostSendFailed, 1)
		}
	}
}

// deliver sends a packet to a neighbour that is known, or says why it is lost.
func (r *Resolver) deliver(e *entry, frame []byte) (refusal string) {
	frame = bytes.Clone(frame)
	copy(frame, e.mac[:])
	if !r.push(outgoing{network: e.network.name, frame: frame}) {
		return lostOverflow
	}
	return ""
}

// keep has a packet wait, or says why it is lost. Of too many for one hop, the oldest is.
func (r *Resolver) keep(e *entry, frame []byte) (refusal string) {
	if len(e.waiting) == maxWaiting {
		r.waiting -= len(e.waiting[0])
		e.waiting = e.waiting[1:]
		r.metrics.lost(lostOverflow, 1)
	}
	if r.waiting+len(frame) > maxWaitingBytes {
		return lostOverflow
	}
	e.waiting = append(e.waiting, bytes.Clone(frame))
	r.waiting += len(frame)
	return ""
}

// discard gives up the packets that wait.
func (r *Resolver) discard(e *entry) {
	r.metrics.lost(lostNoAnswer, len(e.waiting))
	r.release(e)
}

// release has no packet wait any more.
func (r *Resolver) release(e *entry) {
	for _, frame := range e.waiting {
		r.waiting -= len(frame)
	}
	e.waiting = nil
}

// repeats are when an address is announced after the call of Announce. A frame may be lost, and the
// node that had the address before may send from it after the first ones, until it has heard that
// it has gone: switches go by the last frame.
var repeats = []time.Duration{
	0, 50 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, 1000 * time.Millisecond,
}

// Announcements go out in bursts that no queue is too short for.
const (
	burst      = 50
	burstPause = time.Millisecond
)

// announcement is what Announce has begun.
type announcement struct {
	key     Key
	mac     intent.MAC
	started time.Time
	said    int
	timer   timers.Timer
}

// say announces an address once, and sets the time of the next announcement.
func (r *Resolver) say(a *announcement, now time.Time) {
	if now.Sub(r.burstBegan) >= burstPause {
		r.burstBegan, r.announced = now, 0
	}
	if r.announced >= burst {
		r.timers.Set(&a.timer, r.burstBegan.Add(burstPause))
		return
	}
	for _, frame := range packet.Announcement(a.key.Address, a.mac[:], a.key.Address, 0) {
		if r.push(outgoing{network: a.key.Network, frame: frame}) {
			r.metrics.announcements.Inc()
		}
		r.announced++
	}
	if a.said++; a.said == len(repeats) {
		delete(r.announcements, a.key)
		return
	}
	r.timers.Set(&a.timer, a.started.Add(repeats[a.said]))
}
