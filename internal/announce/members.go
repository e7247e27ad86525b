// SPDX-License-Identifier: Apache-2.0

package announce

import (
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
)

// A node is asked about three times a second, by another each time. Whoever gets no answer within one interval suspects
// it, and after three more it is dead, unless it objects: after 1.5 s in most cases. The logarithm of the number of
// nodes multiplies these three: with 100 nodes it is 2.4 s.
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
	// alone is how long an agent that hears nobody waits before it takes itself for the only one.
	alone = 3 * time.Second
	// rejoin is how often it asks for those that are missing, and contacts is of how many at once.
	rejoin   = 5 * time.Second
	contacts = 3
)

// members is this node's part in the membership.
type members struct {
	list   *memberlist.Memberlist
	log    *slog.Logger
	self   Peer
	port   int
	kick   func()
	cancel context.CancelFunc
	done   chan struct{}
	again  chan struct{}

	mu sync.Mutex
	// peers are the addresses of the nodes that may take part.
	peers map[string]netip.Addr
	// settled says that the others have been asked who is alive.
	settled bool
	// joined counts who came: what was announced before may have been taken by them.
	joined int
}

// join starts to take part.
func join(o Options, log *slog.Logger, peers []Peer, keys [][]byte, kick func()) (*members, error) {
	m := &members{
		log: log, self: Peer{Name: o.Node, Addr: o.Address}, port: o.Port, kick: kick, done: make(chan struct{}), again: make(chan struct{}, 1),
	}
	m.set(peers)
	c := memberlist.DefaultLANConfig()
	c.Name, c.BindAddr, c.AdvertiseAddr = o.Node, o.Address.String(), o.Address.String()
	c.BindPort, c.AdvertisePort = o.Port, o.Port
	c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult, c.SuspicionMaxTimeoutMult = probeInterval, probeTimeout, suspicion, 1
	c.GossipInterval, c.TCPTimeout, c.PushPullInterval = gossipInterval, streamTimeout, pushPull
	c.GossipToTheDeadTime, c.DeadNodeReclaimTime = pushPull, time.Nanosecond
	c.Events, c.Alive, c.RequireNodeNames, c.EnableCompression = m, m, false, false
	c.Logger = log2slog(log)
	if len(keys) > 0 {
		var err error
		if c.Keyring, err = memberlist.NewKeyring(keys, keys[0]); err != nil {
			return nil, fmt.Errorf("keys of the membership: %w", err)
		}
	}
	list, err := memberlist.Create(c)
	if err != nil {
		return nil, fmt.Errorf("membership at %s: %w", net.JoinHostPort(c.BindAddr, strconv.Itoa(o.Port)), err)
	}
	m.list = list
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go m.meet(ctx)
	return m, nil
}

// set replaces who may take part.
func (m *members) set(peers []Peer) {
	known := make(map[string]netip.Addr, len(peers))
	for _, p := range peers {
		known[p.Name] = p.Addr
	}
	m.mu.Lock()
	m.peers = known
	m.mu.Unlock()
	select {
	case m.again <- struct{}{}:
	default:
	}
}

// meet asks those that are missing whom they know, until it is cancelled. Two halves of a cluster that could not hear each
// other become one by it.
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
			// The error says who did not answer, which is what "missing" means.
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

// stop ends without a word: the kernel goes on answering, and if the agent is back soon, nobody has noticed.
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
	m.log.Info("node takes part", "node", n.Name)
	m.kick()
}

// NotifyLeave implements memberlist.EventDelegate.
func (m *members) NotifyLeave(n *memberlist.Node) {
	m.log.Info("node is gone", "node", n.Name)
	m.kick()
}

// NotifyUpdate implements memberlist.EventDelegate.
func (m *members) NotifyUpdate(*memberlist.Node) {}

// NotifyAlive implements memberlist.AliveDelegate: only the cluster's nodes take part, each at its own address.
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

// logWriter takes memberlist's lines, which begin with their level.
type logWriter struct{ log *slog.Logger }

func log2slog(l *slog.Logger) *log.Logger { return log.New(logWriter{l}, "", 0) }

func (w logWriter) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	level := slog.LevelInfo
	if strings.HasPrefix(text, "[") {
		name, rest, _ := strings.Cut(text[1:], "] ")
		text = rest
		switch name {
		case "DEBUG", "INFO":
			level = slog.LevelDebug
		case "WARN", "ERR", "ERROR":
			// What matters of it is said in words of our own, when it has an effect.
			level = slog.LevelInfo
		}
	}
	w.log.Log(context.Background(), level, "membership", "says", strings.TrimPrefix(text, "memberlist: "))
	return len(line), nil
}
