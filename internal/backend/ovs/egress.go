// SPDX-License-Identifier: Apache-2.0

package ovs

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"coelan.io/coelan/internal/backend"
	"coelan.io/coelan/internal/backend/ovs/failover"
	"coelan.io/coelan/internal/backend/ovs/ovsdb"
	"coelan.io/coelan/internal/backend/ovs/pipeline"
	"coelan.io/coelan/internal/heartbeat"
	"coelan.io/coelan/internal/intent"
	"coelan.io/coelan/internal/packet"
	"coelan.io/coelan/internal/reserved"
	"coelan.io/coelan/internal/retry"
	"coelan.io/coelan/internal/trigger"
)

// kindEgress is the kind of what is remembered of EgressAddresses: which node is active.
const kindEgress = "egress"

// egress finds out with the other nodes which of them is active for each EgressAddress. The rules
// are those of package failover; here they get the state of sessions, claims and what is heard on
// the wire.
type egress struct {
	log     *slog.Logger
	node    string
	boot    string // names the kernel's present run
	intent  *intent.Store
	numbers *numbers
	store   objectStore
	hooks   backend.Hooks
	loop    *heartbeat.Loop
	db      sessionDatabase
	watch   func() (changes <-chan struct{}, stop func())
	// send puts a frame onto the wire of an external Network.
	send func(ctx context.Context, network string, frame []byte) error
	// changed follows each change of states; sessions asks for other sessions.
	changed, sessions func()
	// wake has it decide.
	wake trigger.Trigger

	mu      sync.Mutex
	machine *failover.Machine
	states  map[failover.Key]failover.State
	// since is when each session was wanted first; zero: it has been up. By the other node's name.
	since map[string]time.Time

	unsaved bool // what is remembered is not what has been decided; for step alone
}

// newEgress makes what knows the states that it had before a restart: the first flows are made by
// these.
func newEgress(o backend.Options, n *numbers, boot string) *egress {
	e := &egress{
		log: o.Log, node: o.Node, boot: boot, intent: o.Intent, numbers: n, store: o.Attachments, hooks: o.Hooks,
		loop: o.Monitor.Loop("egress"), wake: trigger.New(), since: map[string]time.Time{},
	}
	saved, sure := loadEgress(o.Attachments.Objects(kindEgress), boot)
	e.machine, e.states = failover.New(o.Node, saved, sure), saved
	n.setEgress(egressStates(saved))
	return e
}

// loadEgress reads what save has written; sure says that the node has not been booted since.
func loadEgress(saved map[string][]byte, boot string) (states map[failover.Key]failover.State, sure bool) {
	states = map[failover.Key]failover.State{}
	sure = true
	for name, data := range saved {
		network, text, _ := strings.Cut(name, "/")
		a, err := netip.ParseAddr(text)
		of, active, ok := strings.Cut(string(data), " ")
		if err != nil || !ok {
			continue // it is found out anew
		}
		states[failover.Key{Network: network, Address: a}] = failover.State{Active: active}
		sure = sure && of == boot && boot != ""
	}
	return states, sure
}

func (e *egress) save(states map[failover.Key]failover.State) error {
	saved := make(map[string][]byte, len(states))
	for key, s := range states {
		if s.Active != "" {
			saved[key.Network+"/"+key.Address.String()] = []byte(e.boot + " " + s.Active)
		}
	}
	return e.store.SaveObjects(kindEgress, saved)
}

func egressStates(states map[failover.Key]failover.State) map[pipeline.ExternalKey]pipeline.EgressState {
	all := make(map[pipeline.ExternalKey]pipeline.EgressState, len(states))
	for key, s := range states {
		all[pipeline.ExternalKey(key)] = pipeline.EgressState(s)
	}
	return all
}

// doubt has this node ask whether it is the only active one: its data path was away.
func (e *egress) doubt() {
	e.mu.Lock()
	e.machine.Doubt()
	e.mu.Unlock()
	e.wake.Fire()
}

// run decides until ctx ends.
func (e *egress) run(ctx context.Context) error {
	changes, stop := e.watch()
	defer stop()
	backoff := retry.New(minReconcileBackoff, maxReconcileBackoff)
	var last *intent.State
	for {
		state := e.intent.State()
		var next <-chan time.Time
		var err error
		switch {
		case state.Local().Node == "": // what is not known yet would be forgotten
		case last != nil && last.EgressAddresses().Len()+state.EgressAddresses().Len() == 0:
			last = state // nothing is to be decided, and most changes are of something else
		default:
			done := e.loop.Step()
			next, err = e.step(ctx, last, state)
			done()
			if err == nil {
				last = state
			} else if ctx.Err() == nil {
				e.log.Warn("cannot find out which nodes are active for external addresses, retrying", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-state.Replaced():
		case <-changes:
		case <-e.wake:
		case <-next:
		case <-backoff.After(err):
		}
	}
}

// step decides once, and says when to do so again without an event. Last is the State of the last
// one that succeeded; nil: none has.
func (e *egress) step(ctx context.Context, last, state *intent.State) (next <-chan time.Time, err error) {
	wanted := sessions(state)
	ports, err := e.db.Ports(ctx)
	if err != nil && len(wanted) > 0 { // the nodes in reach are those that were
		return nil, sessionError(err)
	}
	err = nil // without sessions nothing depends on the database
	now := time.Now()
	e.mu.Lock()
	alive, settles := e.look(wanted, ports, now)
	e.machine.SetAlive(alive)
	if last == nil || len(intent.Diff(last, state).EgressAddresses) > 0 {
		e.machine.SetAddresses(egressAddresses(state))
	}
	d := e.machine.Decide(now)
	changed := !maps.Equal(e.states, d.States)
	was := e.states
	e.states = d.States
	e.mu.Unlock()
	claims := make([]backend.ExternalAddress, 0, len(d.Claims))
	for _, key := range d.Claims {
		claims = append(claims, backend.ExternalAddress(key))
	}
	e.hooks.EgressClaims(claims)
	e.ask(ctx, d.Probes)
	if changed {
		e.tell(was, d.States)
		e.numbers.setEgress(egressStates(d.States))
		e.changed()
		e.unsaved = true
	}
	if e.unsaved {
		if err = e.save(d.States); err != nil {
			err = fmt.Errorf("remember the active nodes of external addresses: %w", err)
		}
		e.unsaved = err != nil
	}
	if differ(wanted, ports) {
		e.sessions()
	}
	if !settles.IsZero() && (d.Next.IsZero() || settles.Before(d.Next)) {
		d.Next = settles
	}
	if d.Next.IsZero() {
		return nil, err
	}
	return time.After(max(time.Until(d.Next), time.Millisecond)), err
}

// grace is for how long a session may take to come up before its node is out of reach.
const grace = 2 * time.Second

// look says which nodes are in reach, and when a session's time to come up ends.
func (e *egress) look(wanted map[string]ovsdb.Port, ports []ovsdb.PortState, now time.Time) (
	alive map[string]bool, settles time.Time,
) {
	have := make(map[string]string, len(wanted)) // states by the names of ports
	for _, p := range ports {
		if p.Bridge == sessionBridge {
			have[p.Name] = p.BFDState
		}
	}
	since := make(map[string]time.Time, len(wanted))
	alive = make(map[string]bool, len(wanted))
	for node, port := range wanted {
		began, known := e.since[node]
		alive[node] = false // and not unknown: see Machine.SetAlive
		switch {
		case have[port.Name] == "up":
			began, alive[node] = time.Time{}, true
		case !known:
			began, alive[node] = now, true
		case !began.IsZero():
			alive[node] = now.Sub(began) < grace
		}
		since[node] = began
		over := began.Add(grace)
		if !began.IsZero() && alive[node] && (settles.IsZero() || over.Before(settles)) {
			settles = over
		}
	}
	if len(wanted) == 0 { // without tunnels nothing is known of other nodes
		for n := range e.intent.State().Nodes().All() {
			alive[n.Name] = true
		}
	}
	e.since = since
	return alive, settles
}

// differ reports whether other sessions are wanted than there are.
func differ(wanted map[string]ovsdb.Port, ports []ovsdb.PortState) bool {
	have := map[string]bool{}
	for _, p := range ports {
		if p.Bridge == sessionBridge {
			have[p.Name] = true
		}
	}
	for _, p := range wanted {
		if !have[p.Name] {
			return true
		}
	}
	return len(have) != len(wanted)
}

// tell logs which nodes are active now that were not.
func (e *egress) tell(was, is map[failover.Key]failover.State) {
	for key, s := range is {
		if before := was[key]; before.Active != s.Active {
			e.log.Info("another node is active for an external address", "network", key.Network,
				"address", key.Address, "node", s.Active, "before", before.Active)
		}
	}
}

// ask asks on the wire whether another node answers for addresses.
func (e *egress) ask(ctx context.Context, keys []failover.Key) {
	mac := reserved.ProbeMAC(e.node)
	for _, key := range keys {
		source := netip.IPv4Unspecified()
		if key.Address.Is6() {
			source = mac.LinkLocal()
		}
		frame := packet.NeighbourRequest(key.Address, nil, source, mac[:])
		if err := e.send(ctx, key.Network, frame); err != nil {
			e.log.Debug("cannot ask whether another node answers for an external address", "network", key.Network,
				"address", key.Address, "err", err)
		}
	}
}

// heard takes what a neighbor on an external Network says, which may be another node.
func (e *egress) heard(network string, frame []byte) {
	own := reserved.ProbeMAC(e.node)
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(frame) < packet.EthernetLen {
		return
	}
	to, sender := frame[:6], frame[6:12]
	if claim, ok := packet.ParseClaim(frame); ok && bytes.Equal(to, own[:]) {
		e.machine.Answered(failover.Key{Network: network, Address: claim.Address}, now)
		e.wake.Fire()
		return
	}
	if asked, ok := packet.ParseQuestion(frame); ok && !bytes.Equal(sender, own[:]) {
		first := bytes.Compare(sender, own[:]) < 0
		e.machine.Asked(failover.Key{Network: network, Address: asked}, first, now)
		e.wake.Fire()
	}
}

// state is how this node treats an address.
func (e *egress) state(key failover.Key) failover.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.states[key]
}

// takeovers is how often this node became active for an address.
func (e *egress) takeovers() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.machine.Takeovers()
}

// egressAddresses are those of a State.
func egressAddresses(s *intent.State) []failover.Address {
	var list []failover.Address
	for a := range s.EgressAddresses().All() {
		list = append(list, failover.Address{
			Key:   failover.Key{Network: a.Network, Address: a.Address},
			Nodes: a.Nodes, Leaving: a.Leaving, Claimed: a.Active, Failback: a.Failback,
		})
	}
	return list
}
