// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/timers"
)

// Times are those of RFC 4861, section 10, where it has any.
const (
	// attempts is how many requests may stay unanswered.
	attempts = 3
	// pause is the least time between two requests for an address; gateways are asked for more
	// slowly, up to maxPause.
	pause    = time.Second
	maxPause = 4 * time.Second
	// confirmation is the time between two confirmations of a neighbour that answers.
	confirmation = 30 * time.Second
	// settling is for how long no second change of a MAC is believed, and when the first one is
	// verified.
	settling = time.Second
	// negative is for how long a host that does not answer is not asked for again.
	negative = 5 * time.Second
	// jitter is the largest share that is added to the times above.
	jitter = 0.2
)

// phase is what happens to an entry: see the package's comment.
type phase int

const (
	asking phase = iota
	reachable
	probing
	failed
)

// entry is a neighbour, or an address that may be one.
type entry struct {
	network *network
	address netip.Addr
	gateway bool
	phase   phase
	mac     intent.MAC // zero: unknown
	made    time.Time
	// learned is when the MAC was learned, asked when it was last asked for.
	learned, asked time.Time
	// unanswered counts requests of this phase.
	unanswered int
	// disputed says that stations claim different MACs, and that all are to be asked.
	disputed bool
	// silent says that the log has a gateway that does not answer.
	silent  bool
	backoff *retry.Backoff
	timer   timers.Timer
	// waiting are packets, the oldest first.
	waiting [][]byte
}

func newEntry(n *network, a netip.Addr, now time.Time) *entry {
	e := &entry{network: n, address: a, made: now, backoff: retry.New(pause, maxPause)}
	e.timer = timers.New(func(now time.Time) { n.resolver.expire(e, now) })
	return e
}

func (e *entry) known() bool { return e.mac != intent.MAC{} }

// expire goes on with an entry of which nothing has been heard in time.
func (r *Resolver) expire(e *entry, now time.Time) {
	switch {
	case e.phase == failed:
		r.drop(e)
	case e.phase == reachable:
		e.phase, e.unanswered = probing, 0
		r.probe(e, now)
	case e.unanswered < attempts && e.phase == probing:
		r.probe(e, now)
	case e.unanswered < attempts:
		r.request(e, now)
	case e.gateway && e.phase == probing:
		r.unheard(e)
		r.ask(e, now)
	case e.gateway:
		r.request(e, now)
	case e.known():
		r.Log.Debug("neighbour gone", "network", e.network.name, "address", e.address)
		r.drop(e)
	default:
		e.phase = failed
		r.discard(e)
		r.timers.Set(&e.timer, now.Add(wait.Jitter(negative, jitter)))
	}
}

// unheard takes note of a gateway that does not answer.
func (r *Resolver) unheard(e *entry) {
	r.discard(e)
	if e.silent {
		return
	}
	e.silent = true
	r.Log.Warn("gateway of an external Network does not answer: check the Network's gateway and VLAN, and the uplink",
		"network", e.network.name, "gateway", e.address, "macKept", e.known())
}

// ask begins to ask all stations.
func (r *Resolver) ask(e *entry, now time.Time) {
	e.phase, e.unanswered = asking, 0
	e.backoff.Reset()
	r.request(e, now)
}

// request asks all stations once.
func (r *Resolver) request(e *entry, now time.Time) {
	if e.gateway && e.unanswered >= attempts {
		r.unheard(e)
	}
	e.disputed = false
	r.query(e, nil, now)
	next := wait.Jitter(pause, jitter)
	if e.gateway {
		next = e.backoff.Next()
	}
	r.timers.Set(&e.timer, now.Add(next))
}

// probe asks the station that has the MAC.
func (r *Resolver) probe(e *entry, now time.Time) {
	r.query(e, e.mac[:], now)
	r.timers.Set(&e.timer, now.Add(wait.Jitter(pause, jitter)))
}

func (r *Resolver) query(e *entry, to []byte, now time.Time) {
	source := e.network.source(e.address)
	mac := e.network.macs[source]
	e.asked = now
	e.unanswered++
	r.metrics.requests.Inc()
	r.push(outgoing{
		network: e.network.name, frame: packet.NeighbourRequest(e.address, to, source, mac[:]), request: e,
	})
}

// claimed takes what a frame says of an entry's address.
func (r *Resolver) claimed(e *entry, c packet.Claim, now time.Time) {
	if c.MAC == nil {
		if c.Solicited && e.phase == probing {
			r.confirm(e, now)
		}
		return
	}
	switch mac := intent.MAC(c.MAC); {
	case !unicast(mac) || e.network.ownMAC(mac):
	case mac == e.mac:
		r.confirm(e, now)
	case e.known() && e.phase != asking && !c.Override:
		// A proxy must not displace the host itself (RFC 4861, section 7.2.5).
	case e.known() && now.Sub(e.learned) < settling:
		r.dispute(e)
	default:
		r.learn(e, mac, now)
	}
}

// unicast reports whether a station can have the MAC.
func unicast(mac intent.MAC) bool { return mac[0]&1 == 0 && mac != intent.MAC{} }

// confirm takes note that the neighbour has the MAC that is known.
func (r *Resolver) confirm(e *entry, now time.Time) {
	if e.disputed {
		return
	}
	r.reached(e, now.Add(wait.Jitter(confirmation, jitter)))
}

// dispute has all stations asked when the MAC may change again. Until then, the one that is known
// stays.
func (r *Resolver) dispute(e *entry) {
	if e.disputed {
		return
	}
	e.phase, e.unanswered, e.disputed = asking, 0, true
	r.timers.Set(&e.timer, e.learned.Add(settling))
}

// learn changes the MAC.
func (r *Resolver) learn(e *entry, mac intent.MAC, now time.Time) {
	if e.gateway && e.known() {
		r.Log.Info("gateway of an external Network has another MAC", "network", e.network.name, "gateway", e.address,
			"mac", mac.String(), "before", e.mac.String())
	}
	next := wait.Jitter(confirmation, jitter)
	if e.phase == reachable {
		next = settling // what was not asked for is verified
	}
	if !e.known() && !e.gateway {
		e.network.makeRoom(true)
	}
	e.mac, e.learned, e.disputed = mac, now, false
	r.reached(e, now.Add(next))
	r.tableChanged(now)
}

// reached ends asking and probing until next, and sends on what waits.
func (r *Resolver) reached(e *entry, next time.Time) {
	e.phase, e.unanswered = reachable, 0
	r.timers.Set(&e.timer, next)
	if e.silent {
		e.silent = false
		r.Log.Info("gateway of an external Network answers again", "network", e.network.name, "gateway", e.address)
	}
	packets := e.waiting
	r.release(e)
	for _, frame := range packets {
		if refusal := r.deliver(e, frame); refusal != "" {
			r.metrics.lost(refusal, 1)
		}
	}
}

// drop removes an entry.
func (r *Resolver) drop(e *entry) {
	r.discard(e)
	r.timers.Stop(&e.timer)
	delete(e.network.entries, e.address)
	if e.known() {
		r.tableChanged(time.Now())
	}
}
