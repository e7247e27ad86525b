// SPDX-License-Identifier: Apache-2.0

package nexthops

import (
	"math/rand/v2"
	"time"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/internal/timers"
)

// minInterval bounds what a Target can cost.
const minInterval = 10 * time.Millisecond

// check is one protocol's state of a Target.
type check interface {
	// tick returns what is to be sent now, and when it is to be called again, which is later.
	tick(now time.Time) (send []packet.IP, next time.Time)
	// received takes a packet from the next hop to the Source, and reports whether it is one of
	// the check. An error says what is wrong with one that seems to be.
	received(ip packet.IP, now time.Time) (bool, error)
	// urgent reports whether tick is to be called at once after received.
	urgent() bool
	// down is the check's answer.
	down(now time.Time) bool
	// reason says for the log why the next hop is down.
	reason() string
}

// target is a Target with its state.
type target struct {
	Target
	key   Key // normal
	check check
	down  bool
	timer timers.Timer // for check.tick
}

func (t Target) checkable() bool {
	known := t.Check.Protocol == intent.CheckICMP || t.Check.Protocol == intent.CheckBFD
	key := normal(t.Key)
	return known && key.Source.IsValid() && key.NextHop.IsValid() && key.Source.Is4() == key.NextHop.Is4()
}

func (t Target) attributes() []any {
	return []any{"network", t.Network, "nextHop", t.NextHop, "source", t.Source, "check", t.Check.Protocol}
}

// judge takes over the answer of a check.
func (p *Prober) judge(t *target, now time.Time) {
	down := t.check.down(now)
	if down == t.down {
		return
	}
	t.down, p.changed = down, true
	if down {
		p.Log.Warn("next hop on an external Network does not work: check the host and the way to it",
			append(t.attributes(), "reason", t.check.reason())...)
		return
	}
	p.Log.Info("next hop on an external Network works again", t.attributes()...)
}

// random is a number from 0 up to but not including n.
func random(n uint32) uint32 { return rand.Uint32N(n) } //nolint:gosec // guesses cost a next hop at most its check
