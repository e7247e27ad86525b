// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"coelan.io/coelan/internal/trigger"
)

// Each node is probed about three times a second, by a different member each time. A member that
// gets no answer within one interval suspects the node, which is dead after three more intervals
// unless it refutes that: after 1.5 s in most cases. These three are multiplied by the logarithm of
// the number of nodes: 2.4 s with 100 nodes.
const (
	probeInterval  = 300 * time.Millisecond
	probeTimeout   = 150 * time.Millisecond
	suspicion      = 3
	gossipInterval = 100 * time.Millisecond
	streamTimeout  = time.Second
	pushPull       = 15 * time.Second
	leaveTimeout   = time.Second
)

const (
	// alone is how long an agent without answers waits before it considers itself the only member.
	alone = 3 * time.Second
	// rejoin is how often it asks for those that are missing, and contacts is of how many at once.
	rejoin   = 5 * time.Second
	contacts = 3
)

// label is on every packet and stream, and is authenticated with it, so that nothing of another
// membership with the same key is taken.
const label = "coelan"

// members is this node's part in the membership.
type members struct {
	list   *memberlist.Memberlist
	keys   *memberlist.Keyring
	log    *slog.Logger
	self   Peer
	port   int
	kick   func()
	cancel context.CancelFunc
	done   chan struct{}
	again  trigger.Trigger

	mu sync.Mutex
	// peers are the addresses of the nodes that may take part.
	peers map[string]netip.Addr
	// settled reports that the other members have been asked for their lists of living nodes.
	settled bool
	// joined counts the members that joined: they may have taken over addresses announced before.
	joined int
}

// join starts to take part. There is at least one key.
func join(
	o Options, log *slog.Logger, peers []Peer, keys [][]byte, kick func(), configure func(*memberlist.Config),
) (*members, error) {
	m := &members{
		log: log, self: Peer{Name: o.Node, Addr: o.Address}, port: o.Port, kick: kick, done: make(chan struct{}),
		again: trigger.New(),
	}
	m.set(peers)
	c := memberlist.DefaultLANConfig()
	c.Name, c.BindAddr, c.AdvertiseAddr = o.Node, o.Address.String(), o.Address.String()
	c.BindPort, c.AdvertisePort = o.Port, o.Port
	c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult, c.SuspicionMaxTimeoutMult = probeInterval, probeTimeout,
		suspicion, 1
	c.GossipInterval, c.TCPTimeout, c.PushPullInterval = gossipInterval, streamTimeout, pushPull
	c.GossipToTheDeadTime, c.DeadNodeReclaimTime = pushPull, time.Nanosecond
	c.Events, c.Alive, c.RequireNodeNames, c.EnableCompression = m, m, false, false
	c.Logger = log2slog(log)
	ring, err := memberlist.NewKeyring(keys, keys[0])
	if err != nil {
		return nil, fmt.Errorf("keys of the membership: %w", err)
	}
	// memberlist accepts everything that it decrypts, and a pod's packets come from its node's
	// address: what is not authentic must have no effect.
	c.Keyring, c.GossipVerifyIncoming, c.GossipVerifyOutgoing, c.Label = ring, true, true, label
	if configure != nil {
		configure(c)
	}
	list, err := memberlist.Create(c)
	if err != nil {
		return nil, fmt.Errorf("membership at %s: %w", net.JoinHostPort(c.BindAddr, strconv.Itoa(o.Port)), err)
	}
	m.list, m.keys = list, ring
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.meet(ctx)
	return m, nil
}

// setKeys replaces the keys while the membership goes on.
func (m *members) setKeys(keys [][]byte) error {
	for _, key := range keys {
		if err := m.keys.AddKey(key); err != nil {
			return fmt.Errorf("keys of the membership: %w", err)
		}
	}
	if err := m.keys.UseKey(keys[0]); err != nil {
		return fmt.Errorf("keys of the membership: %w", err)
	}
	for _, old := range slices.Clone(m.keys.GetKeys()) {
		if slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, old) }) {
			continue
		}
		if err := m.keys.RemoveKey(old); err != nil {
			return fmt.Errorf("keys of the membership: %w", err)
		}
	}
	return nil
}

// set replaces the nodes that may take part.
func (m *members) set(peers []Peer) {
	known := make(map[string]netip.Addr, len(peers))
	for _, p := range peers {
		known[p.Name] = p.Addr
	}
	m.mu.Lock()
	m.peers = known
	m.mu.Unlock()
	m.again.Fire()
}

// meet joins with the members that are missing, until it is canceled. It reunites two halves of a
// cluster that could not reach each other.
func (m *members) meet(ctx context.Context) {
	defer close(m.done)
	started := time.Now()
	for {
		missing := m.missing()
		met := 0
		for _, one := range missing {
			if ctx.Err() != nil {
				return
			}
			// The error names members that did not answer, which is what "missing" means.
			n, _ := m.list.Join([]string{one})
			met += n
		}
		wait := rejoin
		switch {
		case len(missing) == 0 || met > 0 || time.Since(started) >= alone:
			m.settle()
		case !m.isSettled():
			wait = min(rejoin, max(alone-time.Since(started), probeInterval), alone/3)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-m.again:
			t.Stop()
		}
	}
}

// missing are addresses of a few peers that are not alive.
func (m *members) missing() []string {
	alive := m.alive()
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for name, a := range m.peers {
		if _, ok := slices.BinarySearch(alive, name); !ok && name != m.self.Name && a.IsValid() {
			all = append(all, net.JoinHostPort(a.String(), strconv.Itoa(m.port)))
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), contacts)]
}

func (m *members) settle() {
	m.mu.Lock()
	was := m.settled
	m.settled = true
	m.mu.Unlock()
	if !was {
		m.kick()
	}
}

func (m *members) isSettled() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.settled
}

// alive are the names of those that take part, sorted, and how many have come so far.
func (m *members) alive() []string {
	var names []string
	for _, n := range m.list.Members() {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

func (m *members) arrivals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.joined
}

// stop ends without leaving the membership: the kernel continues to answer, and if the agent is
// back soon, no other member has noticed.
func (m *members) stop() {
	m.cancel()
	_ = m.list.Shutdown()
	<-m.done
}

// leave tells the others.
func (m *members) leave() {
	_ = m.list.Leave(leaveTimeout)
	m.stop()
}

// NotifyJoin implements memberlist.EventDelegate. Its lock is held: m.list must not be asked.
func (m *members) NotifyJoin(n *memberlist.Node) {
	m.mu.Lock()
	m.joined++
	m.mu.Unlock()
	m.log.Info("node joined the memberlist", "node", n.Name)
	m.kick()
}

// NotifyLeave implements memberlist.EventDelegate.
func (m *members) NotifyLeave(n *memberlist.Node) {
	m.log.Info("node left the memberlist", "node", n.Name)
	m.kick()
}

// NotifyUpdate implements memberlist.EventDelegate.
func (m *members) NotifyUpdate(*memberlist.Node) {}

// NotifyAlive implements memberlist.AliveDelegate: only the cluster's nodes take part, each
// at its own address.
func (m *members) NotifyAlive(n *memberlist.Node) error {
	a, _ := netip.AddrFromSlice(n.Addr)
	a = a.Unmap()
	if n.Name == m.self.Name && a == m.self.Addr {
		return nil
	}
	m.mu.Lock()
	want, ok := m.peers[n.Name]
	m.mu.Unlock()
	if !ok || want != a || int(n.Port) != m.port {
		return fmt.Errorf("no node %s is known at %s", n.Name, net.JoinHostPort(a.String(), strconv.Itoa(int(n.Port))))
	}
	return nil
}

// logWriter takes memberlist's lines, which begin with their level. What matters of them is logged
// in words of our own when it has an effect. The rest is for debugging: anything that reaches the
// port can cause a line with each packet.
type logWriter struct{ log *slog.Logger }

func log2slog(l *slog.Logger) *log.Logger { return log.New(logWriter{l}, "", 0) }

func (w logWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if _, rest, ok := strings.Cut(text, "] "); ok && strings.HasPrefix(text, "[") {
		text = rest
	}
	w.log.Debug("memberlist message", "says", strings.TrimPrefix(text, "memberlist: "))
	return len(line), nil
}
